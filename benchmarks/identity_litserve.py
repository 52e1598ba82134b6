"""LitServe with a model that returns its input, in the environment that `serving.py` makes for it."""

import sys

import litserve


class Identity(litserve.LitAPI):
    """Returns what `inputs` has."""

    def setup(self, device):
        pass

    def decode_request(self, request):
        return request["inputs"]

    def predict(self, x):
        return x

    def encode_response(self, output):
        return {"outputs": output}


if __name__ == "__main__":
    server = litserve.LitServer(Identity(), accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), log_level="error", generate_client_file=False)
