"""The residual stream of a running model, followed operator by operator, and run again in parts."""
