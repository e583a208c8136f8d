"""The layers between a socket and a route."""
