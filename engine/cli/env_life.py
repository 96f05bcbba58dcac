"""What is done to environments and tiers: the same commands below ``tenantry env`` and ``tenantry tier``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from engine.cli.failures import report_error
from engine.cli.invocation import Invocation, json_option
from engine.cli.output import print_document, print_line, print_table
from engine.cli.progress import progress
from engine.errors import ExitCode, InvalidInput, TenantryError, most_serious
from engine.registry.environments import ENVIRONMENTS_FILE
from engine.subject import Subject

if TYPE_CHECKING:
    from engine.environments.hosting import Ended, Hosting, SubjectPlan
    from engine.environments.hosting.jobs import Work

Answers = Sequence[tuple[Subject, "SubjectPlan | TenantryError"]]

VERBS = {
    "reclaim": "Let go of all that it has: its creation ended or was abandoned, every outcome is known.",
    "reclaim-failed-delete": "Go on after a delete that was refused or has no known outcome.",
    "reclaim-unjournalled-delete": "Go on where something is gone although no delete was journalled.",
    "reclaim-unjournalled-create": "Go on where a creation was sent and nobody knows what became of it.",
    "expire-retained": "Delete data whose retention is over.",
}


def add_life(group: click.Group, kind: str, noun: str) -> None:
    """Give `group` the commands that change subjects of `kind`, which people call `noun`."""
    group.add_command(_plan(kind, noun))
    group.add_command(_create(kind, noun))
    group.add_command(_retire(kind, noun))
    group.add_command(_work(kind, "abandon", f"Give up the creation of each {noun}; a verb cleans up.", _abandon))
    for name, help_text in VERBS.items():
        group.add_command(_work(kind, name, help_text, _verb(name)))


def subjects_of(hosting: Hosting, kind: str, uuids: Sequence[str]) -> tuple[Subject, ...]:
    """The subjects of `kind` under `uuids`, or all of the inventory; raises :class:`InvalidInput` for unknown ones."""
    known = [entry.subject for entry in hosting.entries.values() if entry.subject.kind == kind]
    if not uuids:
        return tuple(known)
    if hosting.journal_file.exists():
        known += [Subject(row.kind, row.uuid) for row in hosting.journal.subjects() if row.kind == kind]
    unknown = [uuid for uuid in uuids if Subject(kind, uuid) not in known]
    if unknown:
        raise InvalidInput(f"unknown: {', '.join(unknown)}", hint=f"`tenantry {kind} list` shows all")
    return tuple(Subject(kind, uuid) for uuid in dict.fromkeys(uuids))


def of_fleet(invocation: Invocation) -> tuple[Hosting, tuple[Subject, ...]] | None:
    """The fleet's environments and tiers, tiers first; None for a fleet that hosts none."""
    if not (invocation.root / ENVIRONMENTS_FILE).is_file():
        return None
    hosting = opened(invocation)
    subjects = tuple(entry.subject for entry in hosting.entries.values())
    return (hosting, subjects) if subjects else None


def ask_for_plans(hosting: Hosting, subjects: Sequence[Subject]) -> Answers:
    """The plan of each of `subjects`, or the error that stands in its place; so many at a time as the fleet says."""
    from gevent.pool import Pool

    from engine.environments.hosting import plan_of

    def ask(subject: Subject) -> SubjectPlan | TenantryError:
        try:
            return plan_of(hosting, subject.id)
        except TenantryError as error:
            error.where = error.where or str(subject)
            return error

    return tuple(zip(subjects, Pool(hosting.settings.parallel).imap(ask, subjects), strict=True))


def plans_document(answers: Answers) -> list[dict[str, Any]]:
    """The plans as a part of a document; what could not be planned is in none."""
    return [answer.document() for _, answer in answers if not isinstance(answer, TenantryError)]


def plan_code(answer: SubjectPlan | TenantryError, exit_code: bool) -> ExitCode:
    """The exit code for one plan."""
    if isinstance(answer, TenantryError):
        return answer.exit_code
    if answer.stops:
        return ExitCode.UNREACHABLE if answer.is_unseen else ExitCode.FAILED
    return ExitCode.CHANGES if exit_code and answer.has_changes else ExitCode.DONE


def show_plans(answers: Answers) -> None:
    """Print plans for a person."""
    for _, answer in answers:
        if not isinstance(answer, TenantryError):
            _show_plan(answer)


def show_ended(ended: Sequence[Ended], as_json: bool) -> ExitCode:
    """Print how each job ended; returns the exit code for all of them."""
    if as_json:
        print_document({"subjects": ended_document(ended)})
    else:
        show_ended_table(ended)
    for item in ended:
        if item.error:
            report_error(item.error)
    return most_serious(item.exit_code for item in ended)


def show_ended_table(ended: Sequence[Ended]) -> None:
    """Print how each job ended, for a person."""
    rows = [
        (str(item.subject), item.result.value, item.state or "", ", ".join(item.done) or ("" if item.error else "-"))
        for item in ended
    ]
    print_table(("subject", "result", "state", "done"), rows)
    for item in ended:
        for message in item.messages:
            print_line(f"{item.subject}: {message}")


def ended_document(ended: Sequence[Ended]) -> list[dict[str, Any]]:
    """How each job ended, as a part of a document."""
    return [
        {
            "uuid": item.subject.id,
            "kind": item.subject.kind,
            "result": item.result.value,
            "exit_code": int(item.exit_code),
            "run": item.run,
            "state": item.state,
            "done": list(item.done),
            "messages": list(item.messages),
            "error": item.error,
        }
        for item in ended
    ]


def opened(invocation: Invocation) -> Hosting:
    """The fleet's environments, held against what the journal recorded of them."""
    from engine.environments.hosting import check_recorded, open_hosting

    hosting = open_hosting(invocation.root, invocation.state_directory)
    check_recorded(hosting)
    return hosting


def as_recorded(invocation: Invocation) -> Hosting:
    """The fleet's environments, for what goes by the recorded specification of one: no other entry is in its way."""
    from engine.environments.hosting import open_hosting

    return open_hosting(invocation.root, invocation.state_directory)


def run_subjects(hosting: Hosting, subjects: Sequence[Subject], name: str, work: Work) -> tuple[Ended, ...]:
    """Run `work` on each of `subjects` with a progress display."""
    from engine.environments.hosting import run_jobs

    with progress(name) as report:
        return run_jobs(replace(hosting, report=report), subjects, name, work)


def _plan(kind: str, noun: str) -> click.Command:
    @click.command("plan", help=f"Say what a converge would do with each {noun}, all by default; touches nothing.")
    @click.argument("uuids", nargs=-1, metavar="[UUID]...")
    @click.option("--exit-code", is_flag=True, help="Exit 3 if changes are pending.")
    @json_option
    @click.pass_obj
    def command(invocation: Invocation, uuids: tuple[str, ...], exit_code: bool, as_json: bool) -> ExitCode:
        hosting = opened(invocation)
        answers = ask_for_plans(hosting, subjects_of(hosting, kind, uuids))
        if as_json:
            print_document({"subjects": plans_document(answers)})
        else:
            show_plans(answers)
        for _, answer in answers:
            if isinstance(answer, TenantryError):
                report_error(answer)
        return most_serious(plan_code(answer, exit_code) for _, answer in answers)

    return command


def _create(kind: str, noun: str) -> click.Command:
    @click.command(
        "create", help=f"Make each {noun} of the inventory that is named, or go on with it, until it is ready."
    )
    @click.argument("uuids", nargs=-1, required=True, metavar="UUID...")
    @json_option
    @click.pass_obj
    def command(invocation: Invocation, uuids: tuple[str, ...], as_json: bool) -> ExitCode:
        from engine.environments.hosting import converge

        hosting = opened(invocation)
        subjects = subjects_of(hosting, kind, uuids)
        for subject in subjects:
            if hosting.entry(subject.id).retired:
                raise InvalidInput("the inventory says that it is retired", where=str(subject))
        return show_ended(run_subjects(hosting, subjects, "create", converge), as_json)

    return command


def _retire(kind: str, noun: str) -> click.Command:
    @click.command("retire", help=f"Retire each {noun}: the inventory says so from now on, and what it has goes.")
    @click.argument("uuids", nargs=-1, required=True, metavar="UUID...")
    @json_option
    @click.pass_obj
    def command(invocation: Invocation, uuids: tuple[str, ...], as_json: bool) -> ExitCode:
        from engine.environments.hosting import retire

        hosting = as_recorded(invocation)
        subjects = subjects_of(hosting, kind, uuids)
        for subject in subjects:
            if not hosting.journal_file.exists() or hosting.journal.subject(subject.id) is None:
                raise InvalidInput("it never began", where=str(subject), hint="remove its entry from the inventory")
        return show_ended(run_subjects(hosting, subjects, "retire", retire), as_json)

    return command


def _work(kind: str, name: str, help_text: str, work: Callable[[], Work]) -> click.Command:
    @click.command(name, help=help_text)
    @click.argument("uuids", nargs=-1, required=True, metavar="UUID...")
    @json_option
    @click.pass_obj
    def command(invocation: Invocation, uuids: tuple[str, ...], as_json: bool) -> ExitCode:
        hosting = as_recorded(invocation)
        return show_ended(run_subjects(hosting, subjects_of(hosting, kind, uuids), name, work()), as_json)

    return command


def _abandon() -> Work:
    from engine.environments.hosting import abandon

    return abandon


def _verb(name: str) -> Callable[[], Work]:
    def work() -> Work:
        from engine.environments.conditions import Verb
        from engine.environments.hosting import give_verb

        first, *rest = name.split("-")
        return give_verb(Verb(first + "".join(part.capitalize() for part in rest)))

    return work


def _show_plan(plan: SubjectPlan) -> None:
    goal = "retired" if plan.retires else "ready"
    changes = "changes pending" if plan.has_changes else "nothing pending"
    line = f"{plan.kind}/{plan.uuid}: {plan.state or 'planned'} -> {goal}, {'stops' if plan.stops else changes}"
    print_line(line, style="red" if plan.stops else "yellow" if plan.has_changes else "green")
    for item in plan.resources:
        if item.step.value != "nothing":
            print_line(f"  {item.step} {item.kind} {item.name}: {item.seen}{f', {item.word}' if item.word else ''}")
    print_line(f"  digest: {plan.digest}")
