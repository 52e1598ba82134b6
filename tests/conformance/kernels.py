"""Kernels of Elastic Distributed Inference, as WMLA's users write them, and their packages."""

from __future__ import annotations

import json

from tests.packages import packed

# It has no `on_kernel_start`.
ECHO = """
import redhareapiversion
from redhareapi import Kernel

class Echo(Kernel):
    def on_task_invoke(self, task_context):
        try:
            Kernel.log_info("task %s" % task_context.get_id())
            task_context.set_output_data(task_context.get_input_data())
        except Exception as e:
            Kernel.log_error("failed: %s" % e)

if __name__ == "__main__":
    Echo().run()
"""
# As a classifier of pictures has it: weights from its folder, requests and answers in the shape of v2.
NET = """
import base64, json, os, sys
import torch
from redhareapi import Kernel

class Net(Kernel):
    def on_kernel_start(self, kernel_context):
        described = json.loads(kernel_context.get_model_description())
        Kernel.log_info("instance " + str(kernel_context.get_instance_id()))
        self.net = torch.nn.Linear(3, 2)
        self.net.load_state_dict(torch.load(os.path.join(described["model_path"], "model_epoch_final.pth")))
        self.word = os.environ["GREETING"] + {each["key"]: each["value"] for each in described["attributes"]}["name"]

    def on_task_invoke(self, task_context):
        while task_context != None:
            asked = json.loads(task_context.get_input_data())
            rows = torch.tensor([list(base64.b64decode(each)) for each in asked["inputs"][0]["data"]]).float()
            with torch.no_grad():
                found = self.net(rows)
            output = {"name": self.word, "datatype": "FP32", "shape": [*found.shape], "data": found.flatten().tolist()}
            task_context.set_output_data(json.dumps({"id": asked["id"], "outputs": [output]}))
            task_context = task_context.next()

    def on_kernel_shutdown(self):
        pass

if __name__ == "__main__":
    obj_kernel = Net()
    obj_kernel.run()
"""
# Its class does not call that of its base, and it answers a text that is no JSON.
OLD = """
import json
from redhareapi import Kernel

class InferenceKernel(Kernel):
    def __init__(self):
        self.count = 0

    def on_kernel_start(self, kernel_context):
        self.id = kernel_context.get_id()

    def on_task_invoke(self, task_context):
        self.count += 1
        asked = json.loads(task_context.get_input_data())
        task_context.set_output_data("%s %s" % (asked["data_type"], asked["data_value"][0]["key"]))

if __name__ == "__main__":
    kernel = InferenceKernel()
    kernel.run()
"""
# It catches what is wrong, logs it, and sets nothing.
SILENT = ECHO.replace("task_context.set_output_data(task_context.get_input_data())", "raise ValueError('nothing')")


def archive(
    name: str, kernel: str = ECHO, *, top: str = "", more: dict[str, bytes] | None = None, **fields: object
) -> bytes:
    """The archive of a model, its files at the top or in a folder."""
    described = {"name": name, "kernel_path": "kernel.py", "weight_path": "N/A", "runtime": "python", **fields}
    files = {"kernel.py": kernel.encode(), "model.json": json.dumps(described).encode(), "README.md": b"Echoes."}
    return packed({f"{top}{each}": content for each, content in (files | (more or {})).items()})
