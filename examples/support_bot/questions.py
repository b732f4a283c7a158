"""Made-up questions to a made-up shop, each with the answer that helps: written for this example, about nobody."""

from __future__ import annotations

import random

__all__ = ["ANSWERS", "question"]

ANSWERS = {
    "parcel": "Your parcel's way is under Orders, Track. Without news for three days, we send it again.",
    "refund": "You have 30 days to send it back. The money is with you five days after it is here.",
    "password": "Choose Forgotten password at the sign-in. The letter with the link comes within minutes.",
    "invoice": "All invoices are under Account, Papers, as PDF, with your company's tax number if you gave one.",
    "broken": "We are sorry. Send us a picture of the damage, and a new one leaves today.",
    "person": "Somebody of us calls you back within two hours, from eight to eight.",
}
"""What the bot can say, by a short name: the model's labels."""

_SUBJECTS = {
    "parcel": ("parcel", "package", "delivery", "order", "shipment", "box"),
    "refund": ("shoes", "jacket", "lamp", "order", "present", "kettle"),
    "password": ("password", "login", "account", "code", "email", "app"),
    "invoice": ("invoice", "receipt", "bill", "tax number", "statement", "payment"),
    "broken": ("lamp", "screen", "kettle", "zip", "charger", "chair"),
    "person": ("somebody", "a human", "your team", "a colleague", "the manager", "an agent"),
}
_PHRASES = {
    "parcel": (
        "where is my {}", "my {} has not arrived", "the {} is late by a week", "tracking of the {} shows nothing",
        "when will the {} be here", "the courier lost my {}",
    ),
    "refund": (
        "i want to return the {}", "the {} does not fit, money back please", "how do i send the {} back",
        "refund for the {}", "the {} is too small, can i exchange it", "i changed my mind about the {}",
    ),
    "password": (
        "i forgot my {}", "the {} is not accepted", "cannot sign in, {} wrong", "reset the {} please",
        "the {} says i am locked out", "no letter came to change my {}",
    ),
    "invoice": (
        "i need the {} as pdf", "where do i find the {}", "the {} has the wrong company name", "send the {} again",
        "my accountant asks for the {}", "there is no vat on the {}",
    ),
    "broken": (
        "the {} came broken", "my {} stopped working", "there is a crack in the {}", "the {} is damaged on one side",
        "the {} does not turn on", "a part of the {} is missing",
    ),
    "person": (
        "let me talk to {}", "can {} call me", "i want to speak with {}", "is {} there on the phone",
        "please connect me with {}", "a complaint for {}",
    ),
}  # fmt: skip
_BEFORE = ("", "", "hello, ", "hi there, ", "excuse me, ", "urgent: ", "once more: ")
_AFTER = ("", "", " please", " thanks", " since monday", " and nobody answers", " what now")


def question(coins: random.Random) -> tuple[str, str]:
    """Words that somebody might write, and the name of the answer that helps.

    >>> question(random.Random(4))
    ('urgent: how do i send the shoes back thanks', 'refund')
    """
    name = coins.choice(list(ANSWERS))
    words = coins.choice(_PHRASES[name]).format(coins.choice(_SUBJECTS[name]))
    return coins.choice(_BEFORE) + words + coins.choice(_AFTER), name
