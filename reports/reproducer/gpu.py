"""The run on a GPU in a reproducer: on copies of its arrays, fetched when it is done."""

CONSTANTS = ('DEVICE = "cuda"', "SENT = []  # memory that the kernel was given the last time: here, and its copy there")
MISSING = (
    'if DEVICE == "cuda" and not torch.cuda.is_available():',
    '    print("it failed on a GPU, and torch finds none here")',
    "    return 2",
)
FUNCTIONS = (
    '''def on_gpu(kernel):
    """A function of arrays with their types that runs the kernel on the GPU, and fetches all that it has left there."""

    @functools.wraps(kernel)
    def call(*args, **named):
        SENT.clear()
        args = [sent(*a) if isinstance(a, tuple) else a for a in args]
        named = {name: sent(*a) if isinstance(a, tuple) else a for name, a in named.items()}
        with torch.device(DEVICE):
            result = kernel(*args, **named)
        for room, copy in SENT:
            room.copy_(copy)
        return result

    return call''',
    '''def sent(array, dtype):
    """A tensor on the GPU over a copy of all the memory around an array, as far from a multiple of 256 as here."""
    room = torch.from_numpy(around(array))
    shift, size = room.data_ptr() % 256, room.numel() // 256 * 256 + 512
    there = torch.empty(size, dtype=torch.uint8, device=DEVICE)
    copy = there[shift : shift + room.numel()]
    copy.copy_(room)
    SENT.append((room, copy))
    begin = shift + array.ctypes.data - room.data_ptr()
    steps = [step // array.itemsize for step in array.strides]
    return there.view(dtype).as_strided(array.shape, steps, begin // array.itemsize)''',
)
HERE = '''def here(address):
    """The address here of what lies at an address of the GPU; 0 if it is none of an array."""
    offsets = [(room.data_ptr(), address - copy.data_ptr(), room.numel()) for room, copy in SENT]
    return next((begin + offset for begin, offset, size in offsets if 0 <= offset < size), 0)'''
