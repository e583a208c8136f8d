"""Access control: tokens, their scopes, and the check of each request."""
