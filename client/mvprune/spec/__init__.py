"""The job spec: what the contract says of it, the options of `submit`, and the messages they become."""
