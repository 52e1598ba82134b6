"""The least that an HTTP server can do, and the floor of every other one: ASGI on uvicorn returns the body."""

import sys

import uvicorn


async def app(scope, receive, send):
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    config = {"loop": "uvloop", "http": "httptools", "ws": "none", "lifespan": "off", "access_log": False}
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", **config)
