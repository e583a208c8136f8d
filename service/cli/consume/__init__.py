"""`ftrl consume`: topics of Kafka into the example log of a model, each message once."""
