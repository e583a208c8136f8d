"""The API's reference in the browser: Swagger UI over `/openapi.json`.

Its files are those of the package swagger-ui-dist, as they are, in `static/swagger-ui/`; `README` there says
which version. The page asks no other host for anything.
"""
