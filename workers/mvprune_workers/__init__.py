"""The worker: a supervisor that holds an attempt's lease, and the trainer process that does the work.

`python -m mvprune_workers` is the supervisor. It never imports torch, so it stays small and answers the control
plane whatever the trainer does. `python -m mvprune_workers.trainer` is the process that it starts and watches.
"""
