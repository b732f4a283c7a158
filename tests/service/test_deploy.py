"""What a deployment is made of agrees with what the project has: commands, extras, ports, metrics, places."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi import FastAPI
from typer.testing import CliRunner

from benchmarks.service import TARGETS, page
from confide.cli.app import app
from confide.service.config import EXAMPLE, Config, PartitionsConfig, read_config
from confide.service.logs import Log
from confide.service.metrics import Metrics, public_text
from confide.service.public import health

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
DEFAULTS = Config(**tomllib.loads(EXAMPLE))


def steps() -> list[tuple[str, str]]:
    """The Dockerfile's instructions."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line.strip())]


def unit() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(interpolation=None, strict=True, delimiters=("=",))
    parsed.optionxform = str  # type: ignore[method-assign, assignment]
    parsed.read(ROOT / "deploy" / "confide.service", encoding="utf-8")
    return parsed


def commands() -> set[str]:
    told = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100", "TERM": "dumb"}).output
    return set(re.findall(r"^\W*(\w+)  ", told, flags=re.MULTILINE))


def test_the_container_installs_an_extra_that_exists_and_runs_a_command_that_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    installed = dict(rest.split("=", 1) for word, rest in steps() if word == "ARG")["EXTRAS"].split(",")
    assert "service" in installed and set(installed) <= set(extras) and '".[${EXTRAS}]"' in DOCKERFILE
    found = dict(steps())
    assert found["ENTRYPOINT"] == '["confide"]' and found["CMD"].startswith('["serve", ') and "serve" in commands()


def test_the_container_copies_what_is_there_and_what_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [one for word, rest in steps() if word == "COPY" and "--from" not in rest for one in rest.split()[:-1]]
    assert copied and {Path(one).parts[0] for one in copied} <= kept
    assert all((ROOT / one).exists() for one in copied)


def test_the_container_is_nobody_in_particular() -> None:
    words = [word for word, _ in steps()]
    found = dict(steps())
    user = found["USER"]
    assert user.isdigit() and int(user) > 0 and f"--uid {user}" in DOCKERFILE
    assert words.index("USER") > max(i for i, word in enumerate(words) if word in ("RUN", "COPY"))
    assert "/var/lib/confide" in found["VOLUME"] and found["STOPSIGNAL"] == "SIGTERM"


def test_the_container_has_the_services_ports_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dict(steps())
    assert found["EXPOSE"].split() == [str(DEFAULTS.public.port), str(DEFAULTS.operator.port)]
    assert f"127.0.0.1:{DEFAULTS.operator.port}/healthz" in found["HEALTHCHECK"]
    settings = dict(one.split("=", 1) for one in shlex.split(found["ENV"]))
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    read = Config(**tomllib.loads(EXAMPLE))  # an unknown CONFIDE_… would change nothing
    assert (read.public.host, read.operator.host) == ("0.0.0.0", "0.0.0.0")
    assert (read.public.port, read.operator.port) == (DEFAULTS.public.port, DEFAULTS.operator.port)
    read = read_config(DEPLOY / "confide.toml")  # says nothing of ports: a host from the environment leaves them
    assert (read.public.host, read.operator.host) == ("0.0.0.0", "0.0.0.0")
    assert (read.public.port, read.operator.port) == (DEFAULTS.public.port, DEFAULTS.operator.port)


def test_the_unit_is_hardened_and_starts_what_exists() -> None:
    service = unit()["Service"]
    start = shlex.split(service["ExecStart"])
    assert Path(start[0]).name == "confide" and start[1] in commands() and start[2] == "/etc/confide/confide.toml"
    wanted = {
        "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes",
        "PrivateDevices": "yes", "CapabilityBoundingSet": "", "UMask": "0077", "LimitCORE": "0",
        "StateDirectory": "confide", "StateDirectoryMode": "0700", "User": "confide",
    }  # fmt: skip
    assert {name: service[name] for name in wanted} == wanted
    assert "MemoryDenyWriteExecute" not in service, "kernels are compiled"
    assert int(service["TimeoutStopSec"]) > 60 and service["KillSignal"] == "SIGTERM"
    assert unit()["Install"]["WantedBy"] == "multi-user.target"


def test_systemd_takes_the_unit() -> None:
    command = ["systemd-analyze", "verify", "--man=no", str(ROOT / "deploy" / "confide.service")]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        pytest.skip("needs systemd-analyze, to have systemd read the unit")
    wrong = [line for line in told.stderr.splitlines() if "confide.service" in line and "not executable" not in line]
    assert wrong == []


def test_the_alarms_are_about_metrics_that_exist() -> None:
    shown = {"rounds": 1, "state": "live", "guarantee": {"epsilon": 1.0, "delta": 1e-6}, "monitor": {"rounds": 1}}
    metrics = Metrics(Log())
    metrics.responded("m", "ask", 200, 0.1)
    metrics.served("m", "ask", 1, 0.1)
    metrics.failed("m", "ask", ValueError())
    metrics.late("m")
    metrics.ready("m", None)
    text = (public_text({"m": shown}) + metrics.text({"m": {"ask": 1}}, {})).decode()
    known = set(re.findall(r"^(confide_\w+)[{ ]", text, flags=re.MULTILINE))
    rules = yaml.safe_load((ROOT / "deploy" / "confide-alarms.yml").read_text(encoding="utf-8"))
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    used = set(re.findall(r"confide_\w+", " ".join(expressions)))
    assert len(expressions) >= 5 and used and used <= known
    assert {rule["alert"] for rule in rules["groups"][0]["rules"]} and len(rules["groups"]) == 1
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text(encoding="utf-8"))
    assert scraped["rule_files"] == ["confide-alarms.yml"]
    ports = [job["static_configs"][0]["targets"][0].rpartition(":")[2] for job in scraped["scrape_configs"]]
    assert ports == [str(DEFAULTS.public.port), str(DEFAULTS.operator.port)]
    assert ["authorization" in job for job in scraped["scrape_configs"]] == [False, True]


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "confide.yaml").read_text(encoding="utf-8")))


def pods() -> dict[str, dict[str, Any]]:
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in manifests() if "template" in one["spec"]
    }


def test_kubernetes_takes_the_manifests() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate, which has the schemas")
    for one in manifests():
        validator.validate(one, validator.latest_version(), strict=True)


def test_a_manifest_that_is_wrong_is_not_taken() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate, which has the schemas")
    wrong = next(one for one in manifests() if one["kind"] == "StatefulSet")
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProbes"] = {}
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, validator.latest_version(), strict=True)


def test_the_manifests_agree_with_each_other_and_with_the_service() -> None:
    """Names, ports, probes, places, and that keys come from a Secret."""
    found, specs = manifests(), pods()
    kinds = {(one["kind"], one["metadata"]["name"]) for one in found}
    assert {("StatefulSet", "owner"), ("StatefulSet", "merger"), ("Deployment", "doors")} <= kinds
    assert {("NetworkPolicy", "owner"), ("NetworkPolicy", "merger")} <= kinds
    paths = {route.path for route in routes() if hasattr(route, "path")}
    for name, spec in specs.items():
        labels = next(one for one in found if one["metadata"]["name"] == name and "template" in one["spec"])
        service = next(one for one in found if one["kind"] == "Service" and one["metadata"]["name"] == name)
        pod = labels["spec"]["template"]["metadata"]["labels"]
        assert service["spec"]["selector"] == labels["spec"]["selector"]["matchLabels"] == pod
        (container,), ports = spec["containers"], {"public": DEFAULTS.public.port, "operator": DEFAULTS.operator.port}
        ports |= {"merges": 8002} if name == "merger" else {}
        assert {one["name"]: one["containerPort"] for one in container["ports"]} == ports
        assert all(ports[one["targetPort"]] == one["port"] for one in service["spec"]["ports"])
        probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
        assert {one["path"] for one in probes} <= paths and {one["port"] for one in probes} <= set(ports)
        volumes, mounted = {one["name"] for one in spec["volumes"]}, {one["name"] for one in container["volumeMounts"]}
        assert mounted <= volumes | {"state"} and spec["securityContext"]["runAsUser"] == int(dict(steps())["USER"])
        secrets = [one["secret"]["secretName"] for one in spec["volumes"] if "secret" in one]
        assert secrets == ["confide-keys"] and not spec["automountServiceAccountToken"]
        kept = next(one["mountPath"] for one in container["volumeMounts"] if one["name"] == "keys")
        assert all(str(path.parent) == kept for path in keys())
        assert spec["initContainers"][0]["command"][3:-1] == [f"/secret/{path.name}" for path in keys()]
    assert specs["owner"]["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert specs["owner"]["terminationGracePeriodSeconds"] >= int(unit()["Service"]["TimeoutStopSec"])


def keys() -> list[Path]:
    """The files of keys that every process has."""
    config = read_config(DEPLOY / "confide.toml")
    (cut,) = [one.partitions for one in config.models.values()]
    assert cut is not None
    return [config.doors.asker_keys, config.doors.operator_keys, cut.key]


def test_in_kubernetes_each_pod_owns_what_is_at_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the file that the manifest's first lines make of the compose file's."""
    text = (DEPLOY / "kubernetes" / "confide.yaml").read_text(encoding="utf-8")
    rule = re.search(r"sed '(.*)' deploy/confide.toml \| ", text)
    assert rule is not None
    made = subprocess.run(["sed", rule[1], str(DEPLOY / "confide.toml")], capture_output=True, text=True, check=True)
    (tmp_path / "confide.toml").write_text(made.stdout, encoding="utf-8")
    found, owned = manifests(), list[int]()
    (owner,) = [one["spec"] for one in found if (one["kind"], one["metadata"]["name"]) == ("StatefulSet", "owner")]
    for number in range(owner["replicas"]):
        set_by(monkeypatch, pods()["owner"]["containers"][0]["env"], f"owner-{number}")
        owned += cut_of(tmp_path / "confide.toml").here
    cut = cut_of(tmp_path / "confide.toml")
    assert sorted(owned) == list(range(cut.number)) and cut.merges is None
    assert cut.merger == "http://merger:8002", "the name of the merger's Service, and its port"
    for name in environment():
        monkeypatch.delenv(name)
    set_by(monkeypatch, pods()["merger"]["containers"][0]["env"])
    cut = cut_of(tmp_path / "confide.toml")
    assert cut.here == [] and cut.merges is not None and (cut.merges.host, cut.merges.port) == ("0.0.0.0", 8002)


def set_by(monkeypatch: pytest.MonkeyPatch, given: list[dict[str, Any]], pod: str = "") -> None:
    for one in given:
        if one["name"].startswith("CONFIDE_"):
            monkeypatch.setenv(one["name"], one["value"].replace("$(POD)", pod))


def environment() -> list[str]:
    return [name for name in os.environ if name.startswith("CONFIDE_MODELS__")]


def cut_of(file: Path) -> PartitionsConfig:
    (model,) = read_config(file).models.values()
    assert model.partitions is not None
    return model.partitions


def routes() -> list[Any]:
    health(probed := FastAPI(), None)  # type: ignore[arg-type]
    return list(probed.routes)


def test_the_compose_file_agrees_with_what_it_mounts() -> None:
    told = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))
    services, owners = told["services"], [f"owner-{number}" for number in range(4)]
    assert {"postgres", "merger", *owners, "door-a", "door-b", "tls", "prometheus"} == set(services)
    for one in services.values():
        for mount in one.get("volumes", ()):
            source = mount.split(":")[0]
            given = source.startswith("./") and not source.startswith("./tls")  # certificates and a token are yours
            assert (DEPLOY / source).is_file() if given else source.startswith("./tls") or source in told["volumes"]
    public = [port for name in services for port in services[name].get("ports", ()) if "127.0.0.1:" not in port]
    assert public == services["tls"]["ports"], "the operators' ports are nobody's"
    for name in ("door-a", "door-b"):
        assert f"server {name}:{DEFAULTS.public.port} " in (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    scraped = yaml.safe_load((DEPLOY / "prometheus.compose.yml").read_text(encoding="utf-8"))["scrape_configs"]
    hosts = [job["static_configs"][0]["targets"] for job in scraped]
    assert hosts[0] == [f"{name}:{DEFAULTS.public.port}" for name in ("door-a", "door-b")]
    assert hosts[1] == [f"{name}:{DEFAULTS.operator.port}" for name in (*owners, "merger")]
    (model,) = read_config(DEPLOY / "confide.toml").models.values()
    about = services["postgres"]["environment"]
    assert model.ledger is not None
    assert model.ledger.get_secret_value() == f"postgresql://{about['POSTGRES_USER']}@postgres/{about['POSTGRES_DB']}"
    for name in (*owners, "merger"):
        assert services[name]["environment"]["PGPASSWORD"] == about["POSTGRES_PASSWORD"]


def test_every_process_of_the_compose_file_reads_its_file_and_all_partitions_have_one_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One file, and environments, which say what each is."""
    services = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))["services"]
    ours = {name: one for name, one in services.items() if "CONFIDE_IMAGE" in one["image"]}
    owned, merges, doors = dict[str, list[int]](), list[str](), list[str]()
    for name, one in ours.items():
        (file,) = [mount.split(":")[0] for mount in one["volumes"] if mount.endswith("/etc/confide/confide.toml:ro")]
        with monkeypatch.context() as at:
            for variable, value in one["environment"].items():
                at.setenv(variable, value)
            config, cut = read_config(DEPLOY / file), cut_of(DEPLOY / file)
        mounted = {place.split(":")[1] for place in one["volumes"]}
        assert all(str(path.parent) in mounted for path in keys())
        if cut.here:
            owned[name] = cut.here
            assert set(cut.there) == set(range(cut.number)) - set(cut.here)
            assert {url for url in cut.owners.values() if url not in cut.there.values()} == {f"http://{name}:8000"}
        elif cut.merges is not None:
            merges.append(name)
            assert cut.merger == f"http://{name}:{cut.merges.port}" and cut.merges.host == "0.0.0.0"
        else:
            doors.append(name)
            assert config.limits.timeout > DEFAULTS.limits.timeout, "longer than an owner's"
            assert "PGPASSWORD" not in one["environment"]
    assert sorted(number for some in owned.values() for number in some) == list(range(64))
    assert len(owned) == 4 and merges == ["merger"] and doors == ["door-a", "door-b"]


def test_the_page_names_commands_and_settings_that_exist() -> None:
    known = commands()
    assert {one for one in re.findall(r"`?confide (\w+) (?:confide\.toml|--|/etc)", PAGE)} <= known
    limits = set(re.findall(r"`limits\.(\w+)`", PAGE))
    assert limits and limits <= set(type(DEFAULTS.limits).model_fields)
    for name in ("ticket_life", "release_every", "room"):
        assert f"`{name}`" in PAGE and name in type(DEFAULTS.models["spam"]).model_fields
    for name in re.findall(r"`(deploy/[\w.-]+)`", PAGE):
        assert (ROOT / name).is_file(), name


def test_the_page_on_speed_has_the_numbers_that_were_measured() -> None:
    """All targets too: nobody writes a table that the file does not have."""
    file = ROOT / "benchmarks" / "results" / "service.json"
    assert page(file) in (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    told = json.loads(file.read_text())["confide"]
    assert all(told[name] < aim if "ms" in name else told[name] >= aim for name, aim in TARGETS.items())
