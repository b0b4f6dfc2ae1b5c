import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.service.project_file import SCHEMA, ProjectFile, at_commit, schema
from kernel_assay.fuzz.service.protocol import Checkout, JobKind, JobRequest, Target

TEXT = """
owners = ["ann@example.org"]
schedule.every = "6h"
budget.time = "10m"

[[kernels]]
file = "kernels/a.py"
op = "silu"
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "a.py").write_text("import numpy\n\ndef run(out, x):\n    out[...] = x\n")
    (tmp_path / "kassay.toml").write_text(TEXT)
    return tmp_path


def test_the_schema_that_is_shipped_is_that_of_the_record():
    assert SCHEMA.read_text("utf-8") == schema()


def test_says_what_a_project_is(root):
    said = ProjectFile.read(root / "kassay.toml")
    said.check(root)
    project = said.project("https://example.org/x.git")
    assert (project.every_hours, project.settings.seconds, project.owners) == (6.0, 600.0, ("ann@example.org",))
    assert said.target == Target(ops=("silu",), subjects=("kernels/a.py",))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("6h", "often", "schedule.every"),
        ('op = "silu"', 'op = "silu"\nreference = "r.py"', "and not both"),
        ('budget.time = "10m"', 'budget.time = "10m"\nbudget.cases = 3', "and not both"),
        ('op = "silu"', 'ops = "silu"', "kernels.0.ops"),
        ("[[kernels]]", "[[kernels", "cannot be read"),
        ('op = "silu"', 'op = "sill"', "'sill' is not known"),
        ("kernels/a.py", "kernels/b.py", "no file of the repository"),
        ("kernels/a.py", "../../etc/passwd", "no file of the repository"),
        (
            'op = "silu"',
            'op = "silu"\n[[kernels]]\nfile = "kernels/c.py"\n[[kernels]]\nfile = "kernels/a.py:run"\nop = "softmax"',
            "does not say its op",
        ),
    ],
)
def test_says_in_one_sentence_what_is_wrong(root, before, after, said):
    (root / "kernels" / "c.py").write_text("def run(x):\n    return x\n")
    (root / "kassay.toml").write_text(TEXT.replace(before, after))
    with pytest.raises(UsageError, match=said) as raised:
        ProjectFile.read(root / "kassay.toml").check(root)
    assert "\n" not in str(raised.value)


def test_a_job_about_a_commit_takes_its_kernels_from_there(root):
    checkout = Checkout(repository="/r", commit="0" * 40)
    asked = JobRequest(kind=JobKind.FUZZ, checkout=checkout)
    assert at_commit(asked, root).target.subjects == ("kernels/a.py",)
    own = asked.but(target=Target(ops=("gelu",)))
    assert at_commit(own, root) is own
