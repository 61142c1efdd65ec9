"""Documents -> passages -> index -> what a flow puts into a prompt, and the citations under its reply."""
