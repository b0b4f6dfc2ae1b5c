"""Stand-ins for NVIDIA's tools: programs of Python that are called as they are, and print what they print."""

import json
import sys

SANITIZER = """#!{python}
import json, subprocess, sys, time
words = sys.argv[1:]
if words == ["--version"]:
    print("NVIDIA (R) Compute Sanitizer\\nVersion 2025.3.1.0 (build 36400806) (public-release)")
    sys.exit()
tool = words[words.index("--tool") + 1]
how = json.loads({how!r}).get(tool, {{}})
open({calls!r}, "a").write(tool + "\\n")
if "code" in how:
    print(how["said"], file=sys.stderr)
    sys.exit(how["code"])
if how.get("runs", True):
    subprocess.run(words[words.index({python!r}) :])
else:
    print(json.dumps({{"status": "ok", "message": ""}}))
summary = "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" if tool == "racecheck" else (
    "ERROR SUMMARY: 0 errors"
)
log = how.get("log", "========= COMPUTE-SANITIZER\\n========= " + summary + "\\n")
open(words[words.index("--log-file") + 1], "w").write(log)
time.sleep(how.get("sleeps", 0))
"""
NCU = """#!{python}
import sys
words = sys.argv[1:]
how = __import__("json").loads({how!r})
print(how.get("out", '{{"status": "ok", "message": ""}}'))
open(words[words.index("--log-file") + 1], "w").write(how.get("log", ""))
__import__("time").sleep(how.get("sleeps", 0))
sys.exit(how.get("code", 0))
"""
NSYS = """#!{python}
import sys
words = sys.argv[1:]
how = __import__("json").loads({how!r})
open({calls!r}, "a").write(" ".join(words[: words.index({python!r})]) + "\\n")
if how.get("runs", True):
    open(words[words.index("--output") + 1] + ".nsys-rep", "w").write("a report")
    print('{{"status": "ok", "message": ""}}')
    print(" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):")
sys.exit(how.get("code", 0))
"""
BEYOND = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 2 bytes
=========     at wrong(__half *, const __half *)+0x90 in wrong.cu:3
=========     by thread (10,0,0) in block (0,0,0)
=========     Access at 0x7f25aee00014 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f25aee00000 of size 20 bytes
=========
========= ERROR SUMMARY: 1 error
"""
WORDS = (
    "thread 10 of block 0 writes 2 bytes of global memory, 1 byte after the nearest allocation, which has 20, "
    "in wrong (wrong.cu, line 3)"
)
MEASURED = """==PROF== Connected to process 1
"ID","Process ID","Kernel Name","gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum",\
"launch__registers_per_thread","sm__throughput.avg.pct_of_peak_sustained_elapsed",\
"sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","%","ns","register/thread","%","%"
"0","1","wrong(__half *, const __half *)","12.5","2,848","16","0.09","65.1"
"""


class Bench:
    """A folder of such programs, which stands first on the PATH."""

    def __init__(self, folder):
        self.folder = folder
        self._calls = folder / "calls"

    @property
    def asked(self):
        """The tools that were run, in order."""
        return self._calls.read_text().split() if self._calls.exists() else []

    def sanitizer(self, **how):
        """What each tool does: `log`, whether it `runs` the program, how long it `sleeps`; or its exit `code`."""
        self._write("compute-sanitizer", SANITIZER, how)

    def ncu(self, **how):
        self._write("ncu", NCU, how)

    def nsys(self, **how):
        self._write("nsys", NSYS, how)

    def _write(self, name, text, how):
        path = self.folder / name
        path.write_text(text.format(python=sys.executable, how=json.dumps(how), calls=str(self._calls)))
        path.chmod(0o755)
