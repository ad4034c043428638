"""A server that knows one of each thing, for the comparison of answers with docs/json-output.md."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from tests.unit.client.scripted_server import NAME, Fake, always, job, refuse
from tests.unit.client.scripted_sweeps import PASSES, point
from tests.unit.client.scripted_sweeps import SWEEP as SWEEP_NAME

from mvprune.sources.uploads import File, digest
from mvprune.v1 import admin_pb2, artifact_pb2, catalog_pb2, issuer_pb2, job_pb2, sweep_pb2, upload_pb2, webhook_pb2

TIME = "2026-01-31T12:00:00Z"
GATE = {"metric": "eval/accuracy", "min": 0.9}
# A job with every part that can be there, but for its failure.
JOB = {
    "name": NAME,
    "displayName": "three per cent",
    "spec": {
        "model": "bert-base-uncased",
        "task": "sst2",
        "dataset": {"train": "/data/train.tsv", "validation": "/data/dev.tsv"},
        "movement": {"schedule": {"pruning_start": 0.1}},
        "targetDensity": 0.03,
        "include": ["*.attention.*"],
        "exclude": ["*.0.*"],
        "teacher": {"model": "bert-large-uncased", "temperature": 2, "alpha": 0.9, "hidden_states": 0},
        "baseline": {"job": "projects/default/jobs/sst2-baseline-p4x7tq"},
        "training": {
            **{
                "preset": "SHORT",
                "maxSteps": 3000,
                "epochs": 1,
                "batchSize": 32,
                "learningRate": 3e-5,
                "weightDecay": 0,
                "maxLength": 128,
            },
            **{"accumulationSteps": 1, "precision": "BF16", "trainEmbeddings": False, "compile": False},
            **{"gradientCheckpointing": False, "deterministic": False, "evaluateEvery": 500, "patience": 3},
            **{"keepBest": True, "dropout": False, "lrWarmup": 0.1, "lrDensityExponent": 1.0},
        },
        "weightDtype": "FP16",
        "embeddingDtype": "INT8",
    },
    "policy": {
        "resources": {"gpus": 1, "cpus": 4, "memoryBytes": 8589934592, "workers": 1},
        **{"startTimeout": "900s", "maxRuntime": "7200s", "maxQueueTime": "7200s", "retention": "86400s"},
        **{"checkpointInterval": "600s", "maxAttempts": 3, "gates": [GATE]},
    },
    "labels": {"team": "search"},
    "state": "SUCCEEDED",
    "progress": {"phase": "pruning", "step": 120, "totalSteps": 400, "density": 0.4, "loss": 0.43, "eta": "80s"},
    "attempt": 1,
    "modelSize": {"baseParameters": 108891648, "encoderParameters": 85054464, "prunableWeights": 84934656},
    "metrics": {"eval/accuracy": 0.875, "delta/accuracy": -0.025},
    "primaryMetric": "accuracy",
    "creator": "local",
    "gateResults": [{"gate": GATE, "observed": 0.875}],
    "note": "the one to ship",
    "notes": ["columns: text 'text', label 'label'"],
    "estimate": {"phases": [{"name": "dense", "steps": 9}], "runtime": "9s", "text": "about 9 s of work"},
    **{f"{name}Time": TIME for name in ("create", "start", "end", "update", "expire")},
}
SWEEP = {
    "name": SWEEP_NAME,
    "spec": {
        "axes": [{"parameter": "density", "values": [0.03, 0.05]}],
        "points": [{"density": 1, "model": "small"}],
        "exclude": [{"density": 0.03}],
        "search": {"goal": "DENSITY", "seeds": 1},
        "objectives": [{"metric": "eval/accuracy", "direction": "MAXIMIZE"}],
        "gates": [{"metric": "delta/accuracy", "min": -0.01}],
        "maxLoss": 1.0,
    },
    "policy": {"parallel": 4, "maxFailed": 3, "maxRuntime": "86400s", "maxGpuHours": 24},
    "labels": {"team": "search"},
    "state": "SUCCEEDED",
    "counts": {"total": 40},
    "recommendation": PASSES,
    "cost": {"runtime": "9s", "gpuHours": 12, "baselineRuntime": "9s", "savedRuntime": "9s"},
    "estimate": {"jobs": 40, "runtime": "9s", "text": "40 jobs"},
    "notes": ["penalty does not apply to magnitude"],
    **{f"{name}Time": TIME for name in ("create", "end", "update")},
}
TOKEN = {
    **{"name": "projects/p/tokens/token-k3h9", "displayName": "CI", "scope": "SUBMIT", "creator": "local"},
    **{f"{name}Time": TIME for name in ("create", "expire", "revoke", "lastUse")},
}

WEBHOOK = {
    **{"name": "projects/p/webhooks/ci", "displayName": "CI", "url": "https://ci.example", "events": ["job.*"]},
    **{"labels": {"team": "search"}, "format": "CLOUDEVENTS", "state": "ENABLED", "creator": "local", "etag": "1"},
    **{f"{name}Time": TIME for name in ("create", "update", "nextAttempt", "oldSecretExpire")},
}
DELIVERY = {
    **{"name": "projects/p/webhooks/ci/deliveries/d", "type": "t", "subject": "s", "state": "DELIVERED"},
    **{f"{name}Time": TIME for name in ("create", "attempt")},
}
ENTRY = {
    **{"name": "projects/p/auditEntries/e", "principal": "token-a", "method": "CancelJob", "code": "OK"},
    **{"resource": "projects/p/jobs/j1", "address": "10.0.0.7", "requestId": "once", "createTime": TIME},
}
ISSUER = {
    **{"name": "issuers/i", "url": "https://issuer.example", "audience": "a", "source": "API", "creator": "local"},
    "rules": [{"claims": [{"name": "repository_id", "text": "y"}], "project": "p", "scope": "SUBMIT"}],
    **{f"{name}Time": TIME for name in ("create", "update")},
}


def parsed(kind: Any, fields: dict[str, Any]) -> Any:
    return json_format.ParseDict(fields, kind())


def uploaded(announced: upload_pb2.Upload) -> upload_pb2.Upload:
    """What a server says of an upload that it has."""
    files = [File(one.path, one.size_bytes, tuple(one.chunks)) for one in announced.files]
    upload = upload_pb2.Upload(
        name=f"projects/default/uploads/{digest(files)}", kind="DATA", state="READY", creator="a"
    )
    upload.MergeFrom(announced)
    for field in ("create_time", "expire_time"):
        getattr(upload, field).FromJsonString(TIME)
    return upload


@pytest.fixture
def answers(fake: Fake, succeeds: str) -> dict[str, Any]:
    """A server that knows one of each."""
    done = parsed(job_pb2.Job, {**JOB, "artifact": succeeds})
    artifact = fake.answers["GetArtifact"](None, None)
    artifact.create_time.FromJsonString(TIME)
    artifact.expire_time.FromJsonString(TIME)
    line = {"offset": 1, "text": "loss", "time": TIME}
    failed = job("FAILED", failure=job_pb2.Failure(reason="INVALID_MODEL", message="no weights"))

    def get_job(request: job_pb2.GetJobRequest, context: grpc.ServicerContext) -> job_pb2.Job:
        if request.name.endswith(("gone", "away")):
            refuse(context, grpc.StatusCode.NOT_FOUND, f"{request.name} does not exist")
        return failed if request.name.endswith("failed") else done

    times = {f"{name}Time": TIME for name in ("create", "start", "end", "lastHeartbeat")}
    attempt = {"name": f"{NAME}/attempts/1", "state": "SUCCEEDED", "executorRef": "mvprune-1", "node": "n1", **times}
    base = {name: JOB[name] for name in ("spec", "policy")}
    sweep = parsed(
        sweep_pb2.Sweep,
        {**SWEEP, "spec": {**SWEEP["spec"], "base": base["spec"], "jobPolicy": base["policy"]}},  # type: ignore[dict-item]
    )
    one = point(7, artifact=succeeds, optimal=True, targetDensity=1)  # the report reads no artifact of it
    event = {"sequence": 1, "time": TIME, "type": "CLAIM", "actor": "worker", "details": {"node": "n1"}}
    event |= {"fromState": "STARTING", "toState": "RUNNING"}
    update = {"sequence": 7, "job": {**JOB, "artifact": succeeds}, "events": [event], "done": True}
    token, size = parsed(admin_pb2.Token, TOKEN), parsed(job_pb2.ModelSize, JOB["modelSize"])  # type: ignore[arg-type]
    project = admin_pb2.Project(name="projects/p", max_queued_jobs=9, max_running_gpus=2, max_upload_bytes=9)
    webhook, delivery = parsed(webhook_pb2.Webhook, WEBHOOK), parsed(webhook_pb2.WebhookDelivery, DELIVERY)  # type: ignore[arg-type]
    project.jobs["RUNNING"] = project.sweeps["ACTIVE"] = project.uploads["READY"] = 1
    resources = {"gpus": 1, "cpus": 4, "memory_bytes": 8, "workers": 1}
    entry: dict[str, Any] = {"job": NAME, "resources": resources, "create_time": {"seconds": 1}}
    queue = job_pb2.Queue(entries=[entry], capacity={"cpus": 1})
    status = admin_pb2.ServerStatus(version="0.1.0", jobs={"QUEUED": 3}, problems={"store": "away"})
    status.capacity.cpus = 16
    status.quarantine.since.FromJsonString(TIME)
    for field in ("start_time", "time"):
        getattr(status, field).FromJsonString(TIME)
    status.oldest_queued_age.seconds = status.longest_heartbeat_age.seconds = 9
    option = catalog_pb2.MethodOption(name="selection", words=["local"])
    model = catalog_pb2.ModelEntry(name="tiny", source="SERVER", size=size)
    task = catalog_pb2.TaskEntry(name="sst2", metrics=["accuracy"])
    method = catalog_pb2.MethodEntry(name="movement", options=[option])
    fake.answers |= {
        "GetJob": get_job,
        "ListJobs": always(job_pb2.ListJobsResponse(jobs=[done])),
        "CreateJob": always(done),
        "UpdateJob": always(done),
        "CancelJob": always(done),
        "RetryJob": always(done),
        "DeleteJob": always(job_pb2.DeleteJobResponse()),
        "WatchJob": lambda request, context: iter([parsed(job_pb2.WatchJobResponse, update)]),
        "ListJobEvents": always(job_pb2.ListJobEventsResponse(events=[parsed(job_pb2.JobEvent, event)])),
        "SearchLogs": always(job_pb2.SearchLogsResponse(lines=[parsed(job_pb2.SearchLogsResponse.Line, line)])),
        "ListAttempts": always(job_pb2.ListAttemptsResponse(attempts=[parsed(job_pb2.Attempt, attempt)])),
        "GetArtifact": always(artifact),
        "ListArtifacts": always(artifact_pb2.ListArtifactsResponse(artifacts=[artifact])),
        **dict.fromkeys(("CreateSweep", "GetSweep", "CancelSweep", "PauseSweep", "ResumeSweep"), always(sweep)),
        **dict.fromkeys(("RetrySweep", "ExtendSweep", "UpdateSweepPolicy"), always(sweep)),
        "DeleteSweep": always(sweep_pb2.DeleteSweepResponse()),
        "ListSweeps": always(sweep_pb2.ListSweepsResponse(sweeps=[sweep])),
        "WatchSweep": lambda request, context: iter([sweep_pb2.WatchSweepResponse(sweep=sweep, done=True)]),
        "ListSweepPoints": always(sweep_pb2.ListSweepPointsResponse(points=[one])),
        "CreateUpload": lambda request, context: uploaded(request.upload),
        "ListUploads": lambda request, context: upload_pb2.ListUploadsResponse(uploads=[uploaded(upload_pb2.Upload())]),
        "DeleteUpload": always(upload_pb2.DeleteUploadResponse()),
        "ListModels": always(catalog_pb2.ListModelsResponse(models=[model])),
        "ListTasks": always(catalog_pb2.ListTasksResponse(tasks=[task])),
        "ListMethods": always(catalog_pb2.ListMethodsResponse(methods=[method])),
        "CreateToken": always(admin_pb2.CreateTokenResponse(token=token, secret="s")),
        "ListTokens": always(admin_pb2.ListTokensResponse(tokens=[token])),
        "RevokeToken": always(token),
        "ListAuditEntries": always(admin_pb2.ListAuditEntriesResponse(entries=[parsed(admin_pb2.AuditEntry, ENTRY)])),
        **dict.fromkeys(("CreateIssuer", "GetIssuer", "UpdateIssuer"), always(parsed(issuer_pb2.Issuer, ISSUER))),
        "ListIssuers": always(issuer_pb2.ListIssuersResponse(issuers=[parsed(issuer_pb2.Issuer, ISSUER)])),
        "DeleteIssuer": always(issuer_pb2.DeleteIssuerResponse()),
        "CreateShare": always(admin_pb2.CreateTokenResponse(token=token, secret="s")),
        "GetCaller": always(admin_pb2.Caller(id="token-a", project="p", scope="READ", expire_time=token.expire_time)),
        "CreateWebhook": always(webhook_pb2.CreateWebhookResponse(webhook=webhook, secret="s")),
        "RotateWebhookSecret": always(webhook_pb2.RotateWebhookSecretResponse(webhook=webhook, secret="s")),
        **dict.fromkeys(("GetWebhook", "UpdateWebhook"), always(webhook)),
        "ListWebhooks": always(webhook_pb2.ListWebhooksResponse(webhooks=[webhook])),
        "DeleteWebhook": always(webhook_pb2.DeleteWebhookResponse()),
        **dict.fromkeys(("TestWebhook", "RedeliverDelivery"), always(delivery)),
        "ListDeliveries": always(webhook_pb2.ListDeliveriesResponse(deliveries=[delivery])),
        "ListProjects": always(admin_pb2.ListProjectsResponse(projects=[project])),
        "UpdateProject": always(project),
        "GetProject": always(project),
        "GetQueue": always(queue),
        "GetServerStatus": always(status),
    }
    assert isinstance(artifact, artifact_pb2.Artifact)
    return fake.answers
