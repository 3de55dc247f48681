"""The metrics of ``GET /metrics``, and beside them a dashboard for Grafana and alerts for Prometheus."""
