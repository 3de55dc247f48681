"""Which files of a branch services act upon."""

from __future__ import annotations

from deputize.shared.git.executed_files import run_by_hosts


def test_services_beside_the_git_host_are_known_and_files_of_programs_are_not() -> None:
    acting = [
        *(
            ".github/renovate.json",
            ".renovaterc",
            "renovate.json5",
            ".github/mergify.yml",
            "bitrise.yml",
            ".Prow/x.yaml",
        ),
        *(".obs/workflows.yml", ".copr/Makefile", "bamboo-specs/bamboo.yml", ".taskcluster.yml", "ci.gocd.yaml"),
        *(".packit.yaml", "packit.yaml", ".vela.star", "render.yaml", "amplify.yml", ".lfsconfig", ".asf.yaml"),
        *(".cursor/environment.json", ".replit", "devfile.yaml", ".gitpod.Dockerfile", ".do/app.yaml"),
    ]
    harmless = [
        *(
            "src/renovate.json",
            "render.py",
            "mergify.py",
            "app.json",
            "app.yaml",
            "Procfile",
            "package.json",
            "Makefile",
        ),
        *("devfile.py", ".cursor/rules/a.md", "docs/bitrise.yml.md", "platform/a.py", "policy.yml", "settings.yml"),
        *("Dockerfile", "docker-compose.yml", "pyproject.toml", "now.py", "wrangler.py", "gocd.py", "codecov.yml"),
    ]
    assert run_by_hosts([*acting, *harmless]) == acting
