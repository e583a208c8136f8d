"""The built-in dashboard: shows an engineer whether the service is up, fast, learning and right.

The page itself is in `static/`; it asks for nothing from elsewhere and needs no build. The live figures come
over one stream of server-sent events a reader, fed by one sampler a process; the line of each model from
`/overview`; all else from the calls that clients have.
"""
