Redoc.init("openapi.json", {
  disableSearch: true, // it would start a worker from a blob
}, document.getElementById("redoc"));
