"""CarRacing and a policy in one page, both alive in the browser."""
