"""onnxruntime 1.32.0 (CPU): Gelu of float64, approximate="tanh", is computed with float32 constants."""

import math

from _seen import needed, tell

with needed():
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper

ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in "xy"]
node = helper.make_node("Gelu", ["x"], ["y"], approximate="tanh")
graph = helper.make_graph([node], "one", ends[:1], ends[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
got = float(session.run(None, {"x": np.ones(1)})[0][0])
right = 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * 1.044715))
tell(abs(got - right) > 1e-12, f"gelu(1) is {got}, right is {right}")
