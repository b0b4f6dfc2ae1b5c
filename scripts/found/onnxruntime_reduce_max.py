"""onnxruntime 1.32.0 (CPU): ReduceMax of numbers among which is a NaN gives neither NaN nor their largest."""

from _seen import needed, tell

with needed():
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper

x = np.array([5, np.nan, 1, 2, 3, 4, 5, 6, 7, 8], np.float64)
ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in "xy"]
graph = helper.make_graph([helper.make_node("ReduceMax", ["x"], ["y"], keepdims=0)], "one", ends[:1], ends[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
got = float(session.run(None, {"x": x})[0])
tell(not np.isnan(got) and got != 8, f"ReduceMax is {got}, for nan or 8")
