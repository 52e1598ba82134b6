"""LitServe with a model of `net.py`, in batches of up to so many rows, in the environment that `serving.py` makes."""

import sys

import litserve
import torch
from net import MODELS


class Served(litserve.LitAPI):
    """Answers as a deployment does: `{"inputs": [row]}` to `{"outputs": [row]}`."""

    def setup(self, device):
        torch.set_num_threads(1)
        torch.manual_seed(1)
        self.model = MODELS[sys.argv[2]][0]().eval()

    def decode_request(self, request):
        return torch.tensor(request["inputs"])

    def batch(self, inputs):
        return torch.cat(inputs)

    def predict(self, x):
        with torch.inference_mode():
            return self.model(x)

    def unbatch(self, output):
        return [row[None] for row in output]

    def encode_response(self, output):
        return {"outputs": output.tolist()}


if __name__ == "__main__":
    api = Served(max_batch_size=int(sys.argv[3]), batch_timeout=0.002)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), log_level="error", generate_client_file=False)
