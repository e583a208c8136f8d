"""HTTP: the server, the routes, who may call them, the page."""
