"""onnxruntime 1.32.0 (CPU): Tanh of float32 is below -1 for some numbers, so that Gelu is above 0 below 0."""

from _seen import needed, tell

with needed():
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper

ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]


def run(op, x, **attributes):
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], **attributes)], "one", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


x = np.linspace(-12, -1, 1_000_001, dtype=np.float32)
tanh, gelu = run("Tanh", x).min(), run("Gelu", x, approximate="tanh").max()
said = f"tanh is {tanh} somewhere, gelu {gelu} below 0"
tell(tanh < -1 or gelu > 0, said)
