"""Mechanisms that are broken on purpose: each must be caught by a replay or by an audit (tests/test_doubles.py).

One small class or factory for each; its docstring says what is broken and why that leaks. Where the library refuses
the bad thing, the double steps around the refusal. They are here for those who write attackers of their own: an
attacker that does not catch them is not worth much. None of them protects anybody. See docs/doubles.md.

    copies      what one unit brings reaches more than one copy, or others' questions
    seen        an answer, an error, a ticket or a public number tells of others
    coins       coins, counts and halts that hang on what is private, in the plain loop
    compiled    the same in the compiled loop
    guides      what a guide's sums hold, when they are released, with which noise, and what θ follows
    leans       a lean that is steeper than was paid for, looks or answers where it must not, or shows too much
    disk        what is written, when it can be seen, what a load brings back
    tables      other tables than were paid for: for games, a replay does not see them
    variants    six variants of the sparse vector technique
"""
