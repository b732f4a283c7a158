"""What is told where a desk refuses: one sentence that says what to do, and never anything of somebody else."""

from confide.pop.tickets import ROLLED_BACK

__all__ = [
    "AGAIN", "CAPPED", "FIRST", "FORGOTTEN", "GONE", "HALTED", "NOT_YOURS", "NO_ID", "NO_LABEL",
    "NO_SUBJECT", "ONE_IMPORT", "OTHER_LABEL", "OTHER_QUESTION", "OTHER_RECORDS", "OVER", "ROLLED_BACK", "UNSAVED",
    "UNSWEPT", "UNWRITTEN",
]  # fmt: skip

HALTED = "this model has halted: its rounds or its privacy budget are used up"
OTHER_QUESTION = "ask again with an id of its own: this id was used for another question"
OVER = "these are more rounds than one person may take in a day: ask again later, with the same id"
FORGOTTEN = "ask again with an id of its own: what was asked under this id was forgotten, and its answer with it"
OTHER_RECORDS = (
    "nothing was taught: this id was used for an import of other records, or of somebody who was forgotten since; "
    "send what is new with an id of its own"
)
NOT_YOURS = "this is not a ticket of yours: bring back the one that came with your answer"
GONE = "this ticket has expired, or its question was forgotten: ask again"
OTHER_LABEL = "another label was taken for this ticket: a label is taken once"
CAPPED = "of each person {} labels are taken in a life, and yours are used up: this one was not taken"
NO_LABEL = "this is not one of the labels of this model: see its public page"
NO_SUBJECT = "where people are protected a record needs a subject, 1 to 256 printable characters: say whose it is"
NO_ID = "give an import of so many records an id: should it be interrupted, send it again with the same one"
ONE_IMPORT = "another import is being taught: send this one when it is over"
FIRST = "history is being taught, and the first question waits for its end: ask again in a moment, with the same id"
AGAIN = "this could not be made durable: bring it again"
UNREAD = "the ledger could not be read where it has this: send it again in a moment, with the same id"
UNWRITTEN = "the ledger could not be written: make room; the model is opened again when it can be"
UNSWEPT = "what is needed no more could not be deleted from the ledger: make room; the next snapshot tries again"
UNSAVED = "the last snapshot could not be written: make room; the journal has everything, and grows meanwhile"
