"""The names of the commands. A leaf: it imports nothing of mvprune."""

from __future__ import annotations

from typing import NamedTuple

COMPLETING = "_ARGCOMPLETE"  # set by a shell that asks how the command line could continue
SETTING = "sweep."  # begins the `dest` of a setting of sweeps, as some are named as parameters of jobs
CONNECTION = ("address", "project", "token_file", "ca_cert", "insecure")  # common options, arguments of Client


class Command(NamedTuple):
    """A command of mvpctl.

    Attributes:
        help: one line.
        module: module of mvprune.cli with the function NAME_command, imported when the command is called. "": another
            package has the function, see `shared.provided`.
        extra: the extra that installs what the command needs; `package` is a package that it installs.
    """

    help: str
    module: str = ""
    extra: str = ""
    package: str = ""


COMMANDS = {
    "submit": Command("Submit a compression job.", "submit"),
    "get": Command("Show a job.", "jobs"),
    "list": Command("List jobs.", "jobs"),
    "watch": Command("Show a job's changes until it ends.", "follow"),
    "wait": Command("Wait until jobs end; the exit code reports how.", "follow"),
    "logs": Command("Print a job's log.", "follow"),
    "events": Command("Show a job's audit trail.", "jobs"),
    "attempts": Command("Show a job's attempts.", "jobs"),
    "queue": Command("Show what waits, behind how many jobs, and what the cluster has.", "jobs"),
    "update": Command("Change a job's name, labels and note, or comment on it.", "jobs"),
    "cancel": Command("Cancel jobs.", "jobs"),
    "retry": Command("Put failed or cancelled jobs back into the queue.", "jobs"),
    "delete": Command("Delete jobs that have ended; their artifacts are kept.", "jobs"),
    "artifacts": Command("List the project's artifacts.", "jobs"),
    "download": Command("Download a job's artifact.", "download"),
    "sweep": Command("Create, watch and compare families of jobs.", "sweep"),
    "upload": Command("Send models and data, list and delete what was sent.", "upload"),
    "export": Command("Convert an artifact to dense weights, ONNX or CSR.", "export"),
    "inspect": Command("Show an artifact's layers, sizes and origin.", "inspect"),
    "compare": Command("Show artifacts side by side.", "compare"),
    "evaluate": Command("Evaluate an artifact on data, on this machine.", extra="worker", package="torch"),
    "benchmark": Command("Compare sparse inference with dense fp32 and int8 on this machine.", "benchmark"),
    "serve": Command("Serve an artifact's answers over HTTP.", extra="serve", package="uvicorn"),
    "mcp": Command("Serve agents: the Model Context Protocol.", extra="mcp", package="mcp"),
    "push": Command("Publish an artifact to MLflow, the Hub or TensorBoard.", "push"),
    "console": Command("Show jobs in a browser.", "console", extra="console", package="jinja2"),
    "models": Command("List the models that the server knows.", "catalog"),
    "tasks": Command("List the tasks.", "catalog"),
    "methods": Command("List the pruning methods and their options.", "catalog"),
    "config": Command("Show and change this client's settings.", "config"),
    "completion": Command("Print a script for shell completion.", "completion"),
    "token": Command("Create, list and revoke API tokens; share a job.", "token"),
    "webhook": Command("Have events of jobs and sweeps sent to a URL.", "webhook"),
    "issuer": Command("Accept tokens of OpenID Connect issuers.", "issuer"),
    "audit": Command("List who changed what, and what was refused.", "audit"),
    "project": Command("Show and list projects, set their quotas.", "project"),
    "server": Command("Run the service.", "server", extra="all", package="sqlalchemy"),
}
