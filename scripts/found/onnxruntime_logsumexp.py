"""onnxruntime 1.32.0 (CPU): ReduceLogSumExp over an axis is not shifted by the largest number behind a -Inf."""

from _seen import needed, tell

with needed():
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper

ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
node = helper.make_node("ReduceLogSumExp", ["x", "axes"], ["y"], keepdims=0)
graph = helper.make_graph([node], "one", ends[:1], ends[1:], [axes])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
got = [float(session.run(None, {"x": np.array([[-np.inf, x]], np.float32)})[0][0]) for x in (-100, -512)]
wrong = got != [-100, -512]
tell(wrong, f"{got[0]} for [-inf, -100], {got[1]} for [-inf, -512]")
