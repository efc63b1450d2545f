"""The server: invites, passes on what sites send to each other, and publishes."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from mpmtl_prob.federated import flower

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    flower.main(grid, context.run_config)
