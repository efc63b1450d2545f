"""A site: answers for the rows that its node's configuration names, and for no others."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from mpmtl_federated import data
from mpmtl_prob.federated import flower

app = ClientApp()


@app.query(flower.ACTION)
def answer(message: Message, context: Context) -> Message:
    owner = data.owner(context.node_config, context.run_config)
    return flower.answer(message, **owner)
