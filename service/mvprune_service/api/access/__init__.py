"""Who may call, how often and how much at a time: the way of a call to a servicer."""
