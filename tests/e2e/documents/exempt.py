"""What of the documents cannot run here, and why; each entry must match a block."""

from __future__ import annotations

from dataclasses import dataclass

from .blocks import Block

DOCKER = "needs Docker and images"
CLUSTER = "needs a Kubernetes cluster and images"
PYPI = "needs packages from an index"
OTHER_MACHINE = "needs another machine"
GPU = "needs GPUs"
MLFLOW = "needs an MLflow server; tests/unit/cli/test_push.py has one"
HUB = "needs the Hub; tests/unit/publish/test_repository.py has a stand-in"
OWN_MODEL = "mvpctl submit --model ./my-model --train train.jsonl --validation dev.tsv --density 0.10"
ROOT_USER = "needs root and systemd"


@dataclass(frozen=True)
class Exempt:
    """Lines of a page that begin so, with those that continue them; of Python the whole block.

    Attributes:
        output: they run; only what is shown after them is not compared.
    """

    page: str
    start: str
    reason: str
    output: bool = False

    def matches(self, block: Block) -> bool:
        return block.page == self.page and block.without([self.start]) != block


def _all(page: str, reason: str, *starts: str) -> tuple[Exempt, ...]:
    return tuple(Exempt(page, start, reason) for start in starts)


CHART = "deploy/helm/mvprune/README.md"
EXEMPT: tuple[Exempt, ...] = (
    Exempt("README.md", "$ mvpctl submit", "what make demo prints; tests/unit/project/test_pictures.py compares it"),
    *_all("docs/install.md", PYPI, "pip ", "python3 -m venv", "server/bin/pip", "worker/bin/pip"),
    *_all("docs/push.md", PYPI, "pip "),
    *_all("docs/push.md", HUB, "mvpctl push JOB --to hub ", "mvpctl push out/ --to hub ", "commit = "),
    Exempt("docs/infer.md", 'model = mvprune.infer.load("gpt2-out/")', "tests/unit/infer/test_generate.py runs it"),
    *_all("docs/mcp.md", PYPI, "pip "),
    *_all("docs/console.md", PYPI, "pip "),
    *_all("docs/console.md", "tests/unit/console runs it", "mvpctl console", "mvprune-console"),
    *_all("docs/push.md", MLFLOW, "mvpctl push JOB --to mlflow", "mvpctl push out/ --to mlflow", "run = "),
    *_all("docs/push.md", MLFLOW, "model = mlflow"),
    *_all("docs/deploy.md", ROOT_USER, "python3 -m venv", "install ", "systemctl"),
    *_all("docs/deploy.md", DOCKER, "version=", "build=", "$build", "cd deploy", "export MVPRUNE_VERSION"),
    *_all("docs/deploy.md", DOCKER, "./secrets.sh", "mkdir -p models", "docker "),
    *_all("docs/deploy.md", "the server of this test needs no tokens", "export MVPRUNE_TOKEN"),
    *_all("docs/deploy.md", "needs Ray", "mvpctl server check-cluster"),
    *_all(CHART, CLUSTER, "kubectl", "helm", "# 1", "# 2"),
    *_all("docs/security.md", OTHER_MACHINE, "mvpctl server start", "export MVPRUNE_ADDRESS"),
    *_all("docs/submit.md", GPU, f"{OWN_MODEL} --gpus 4", "from mvprune_core import TorchGroup"),
    *_all("docs/submit.md", "no job like it makes steps in this test", "time: about"),
    *_all("docs/models.md", GPU, 'model = mvprune.load("out/").half().cuda()'),
    *_all("docs/cli.md", "needs zsh", "source <(mvpctl completion zsh)"),
    Exempt("docs/operate.md", "mvpctl server status", "shows Ray, S3 and problems", output=True),
    *_all("docs/operate.md", "the status of a server whose store is another database's", "PROBLEM"),
    *_all("docs/operate.md", "a line of the log", "WARNING"),
    *_all("docs/webhooks.md", "tests/integration/test_webhooks.py runs it", "import base64"),
    *_all("docs/webhooks.md", "needs a receiver on the internet", "mvpctl webhook test", "mvpctl webhook redeliver"),
    *_all("docs/native.md", "tests/unit/native/library/test_examples.py runs it", "cc "),
    *_all("docs/native.md", "make setup has run it", "python client/native/build.py"),
    *_all("docs/native.md", "tests/unit/native/library/test_examples.py runs it", "python client/native/archive"),
    *_all("docs/native.md", "tests/unit/native/library/test_examples.py runs it", "tar ", "PKG_CONFIG_PATH"),
    *_all("docs/web.md", "tests/unit/web compiles it, where ziglang is installed", "pip install ziglang", "make web"),
    *_all("docs/api.md", "signatures; tests/unit/project/test_api_reference.py compares them", ""),
    *_all("contributing/executor.md", "tests/unit/service/executors/test_add_an_executor.py runs it", "from "),
    *_all("contributing/method.md", "tests/unit/core/methods/test_add_a_method.py runs it", "from "),
    *_all("contributing/option.md", "tests/unit/spec/test_option_page.py runs it", "label", ".venv", "make proto"),
    *_all(
        "contributing/job-field.md", "tests/unit/service/db/test_job_field_page.py runs it", "comment", '"""A comment'
    ),
    *_all("contributing/job-field.md", "tests/unit/service/db/test_job_field_page.py runs it", '("comment"', ".venv"),
    *_all(
        "contributing/rpc.md", "tests/unit/service/api/test_rpc_page.py runs it", '"RenameJob"', "def ", "async def "
    ),
    *_all("contributing/rpc.md", "tests/unit/service/api/test_rpc_page.py runs it", '"rename"', "make proto", ".venv"),
    *_all("contributing/sweep-option.md", "tests/unit/spec/test_sweep_option_page.py runs it", ".venv", "make proto"),
    *_all("contributing/task.md", "tests/unit/core/tasks/test_add_a_kind.py runs it", "from __future__"),
    *_all("contributing/task.md", "an entry of a list", "Task("),
    *_all("contributing/release.md", "publishes a release", "git "),
)
