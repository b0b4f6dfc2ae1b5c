"""Single operators of ONNX, as onnxruntime's CPU provider computes them."""

from functools import cache

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

BACKEND = "numpy"
DTYPES = ("float32", "float16", "float64")
TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "float64": TensorProto.DOUBLE}


@cache
def session(op, dtypes, out_type, outputs, attributes):
    """Compile a graph of one node; inputs and outputs have any shape. NotImplementedError: the CPU has no kernel."""
    ins = [helper.make_tensor_value_info(f"x{i}", TYPES[d], None) for i, d in enumerate(dtypes)]
    outs = [helper.make_tensor_value_info(f"y{i}", t, None) for i, t in enumerate(out_type)]
    node = helper.make_node(op, [i.name for i in ins], [o.name for o in outs][-outputs:], **dict(attributes))
    graph = helper.make_graph([node], "one", ins, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    chosen = ort.SessionOptions()
    chosen.intra_op_num_threads = 1
    chosen.log_severity_level = 4
    try:
        return ort.InferenceSession(model.SerializeToString(), chosen, providers=["CPUExecutionProvider"])
    except ort.capi.onnxruntime_pybind11_state.NotImplemented as error:
        raise NotImplementedError(str(error)) from None


def one(op, *inputs, to=None, **attributes):
    dtypes = tuple(str(x.dtype) for x in inputs)
    made = session(op, dtypes, (to or TYPES[dtypes[0]],), 1, tuple(attributes.items()))
    return made.run(None, {f"x{i}": np.ascontiguousarray(x) for i, x in enumerate(inputs)})[0]


@cache
def reduction(op, dtype):
    """Compile a reduction of rows, whose axes are an input."""
    x = helper.make_tensor_value_info("x0", TYPES[dtype], None)
    y = helper.make_tensor_value_info("y0", TYPES[dtype], None)
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    node = helper.make_node(op, ["x0", "axes"], ["y0"], keepdims=0)
    graph = helper.make_graph([node], "one", [x], [y], [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    chosen = ort.SessionOptions()
    chosen.intra_op_num_threads = 1
    chosen.log_severity_level = 4
    try:
        return ort.InferenceSession(model.SerializeToString(), chosen, providers=["CPUExecutionProvider"])
    except ort.capi.onnxruntime_pybind11_state.NotImplemented as error:
        raise NotImplementedError(str(error)) from None


def reduced(op, x):
    return reduction(op, str(x.dtype)).run(None, {"x0": np.ascontiguousarray(x)})[0]


def softmax(x):
    return one("Softmax", x, axis=-1)


def gelu(x, *, approximate):
    return one("Gelu", x, approximate=approximate)


def row_argmax(x):
    return one("ArgMax", x, to=TensorProto.INT64, axis=1, keepdims=0)


def row_max(x):
    return reduced("ReduceMax", x)


def row_sum(x):
    return reduced("ReduceSum", x)


def logsumexp(x):
    return reduced("ReduceLogSumExp", x)


def erf(x):
    return one("Erf", x)


def layernorm(x, weight, bias, *, eps):
    return one("LayerNormalization", x, weight, bias, axis=-1, epsilon=eps)


def gemm(a, b):
    return one("MatMul", a, b)
