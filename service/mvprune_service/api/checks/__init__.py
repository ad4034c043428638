"""What is refused of jobs and sweeps before they are stored."""
