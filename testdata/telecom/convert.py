"""Converts a local copy of tau2-bench's telecom domain: convert.py TAU2 OUT

Its three flow charts become definitions, the walks of its tasks through them a test file for `gavel test`, and every
write that its agent could try a golden case for `gavel eval run`. The benchmark's own simulator answers each question
of the charts and says what each write does. Nothing of the benchmark is in this repository.
"""

import copy
import json
import re
import sys
import types
from pathlib import Path

TAU2, OUT = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
if not (TAU2 / "src/tau2/domains/telecom/tools.py").exists():
    sys.exit(f"{TAU2} is no copy of sierra-research/tau2-bench")
package = types.ModuleType("tau2")  # its own __init__ imports models and speech
package.__path__ = [str(TAU2 / "src/tau2")]
sys.modules["tau2"] = package
sys.path.insert(0, str(TAU2 / "src"))

from loguru import logger  # noqa: E402

logger.remove()
from tau2.domains.telecom.environment import get_environment  # noqa: E402
from tau2.domains.telecom.tasks.const import PERSONAS  # noqa: E402
from tau2.domains.telecom.tasks.mms_issues import mms_issue_task_manager as mms  # noqa: E402
from tau2.domains.telecom.tasks.mobile_data_issues import mobile_data_task_manager as mobile  # noqa: E402
from tau2.domains.telecom.tasks.service_issues import service_issues_task_manager as service  # noqa: E402
from tau2.domains.telecom.tasks.utils import compose_tasks  # noqa: E402

DATA = TAU2 / "data/tau2/domains/telecom"
CHARTS = {service: "path1_no_service", mobile: "path2_mobile_data", mms: "path3_mms"}
TODAY = "2025-02-25"  # the policy fixes it
AGENT = {"send_payment_request", "resume_line", "suspend_line", "refuel_data", "enable_roaming", "disable_roaming"}


# --- the charts ---------------------------------------------------------------------------

# The tools behind the boxes of the charts, by a part of the box's name.
TOOLS = [
    ("TurnAirplaneOFF", "toggle_airplane_mode"), ("ReseatSIM", "reseat_sim_card"), ("Action_ResetAPN", "reset_apn_settings"),
    ("RestartDevice", "reboot_device"), ("Action_Reboot", "reboot_device"), ("PaymentRequest", "send_payment_request"),
    ("MakePayment", "make_payment"), ("ResumeLine", "resume_line"), ("TurnDataRoamingON", "toggle_roaming"),
    ("Action_EnableRoaming", "enable_roaming"), ("TurnMobileDataON", "toggle_data"), ("ApplyRefuel", "refuel_data"),
    ("TurnDataSaverOFF", "toggle_data_saver_mode"), ("Action_ChangeNetwork", "set_network_mode_preference"),
    ("TurnVPNOFF", "disconnect_vpn"), ("TurnWifiCallingOFF", "toggle_wifi_calling"), ("GrantPermissions", "grant_app_permission"),
]  # fmt: skip


def tool_of(node):
    return next((tool for part, tool in TOOLS if part in node), None)


def slug(label):
    return re.sub(r"\W+", "_", label.replace("\\n", " ").lower()).strip("_")


def read_chart(name):
    """The edges of a chart: node -> action -> node. Dashed edges lead into another chart, which is an instance of its own."""
    text, edges = (DATA / "workflows" / f"tech_support_{name}.dot").read_text(), {}
    for a, b, more in re.findall(r"^\s*(\w+) -> (\w+)(?: \[(.*)\])?;", text, re.M):
        if "dashed" in more:
            continue
        label = re.search(r'label="([^"]*)"', more)
        action = tool_of(a) or (slug(label[1]) if label else "next")
        out = edges.setdefault(a, {})
        out["to_" + b if action in out else action] = b
    return edges


def definition(name, edges):
    states = {}
    for node, out in edges.items():
        states[node] = {"transitions": {action: {"target": target} for action, target in out.items()}}
        for target in out.values():
            if target not in edges:
                states[target] = {"final": True, "outcome": "success" if target == "End_Resolve" else "failure"}
    return {"name": "telecom-" + name.replace("_", "-"), "initialState": "Start", "states": states}


# --- a walk -------------------------------------------------------------------------------


class Walk:
    """Follows the charts on a task, by the simulator's answers. Each move is a step of a test."""

    def __init__(self, env, charts, probed):
        self.env, self.charts, self.probed, self.done, self.tests = env, charts, probed, [], []
        self.phone, self.around = env.user_tools.device, env.user_tools.surroundings
        self.line = env.tools._get_line_by_phone(self.around.phone_number)

    def account(self):
        return self.env.tools.get_customer_by_phone(self.around.phone_number)

    def overdue(self):
        return next((b for b in self.env.tools.get_bills_for_customer(self.account().customer_id) if b.status == "Overdue"), None)

    def call(self, tool):
        who = {"customer_id": self.account().customer_id}
        arguments = {
            "send_payment_request": lambda: [{**who, "bill_id": self.overdue().bill_id}],
            "resume_line": lambda: [{**who, "line_id": self.line.line_id}],
            "enable_roaming": lambda: [{**who, "line_id": self.line.line_id}],
            "refuel_data": lambda: [{**who, "line_id": self.line.line_id, "gb_amount": 2.0}],
            "set_network_mode_preference": lambda: [{"mode": "4g_5g_preferred"}],
            "grant_app_permission": lambda: [{"app_name": "messaging", "permission": p} for p in ("storage", "sms")],
        }.get(tool, lambda: [{}])()
        for one in arguments:
            self.env.make_tool_call(tool, requestor="assistant" if tool in AGENT else "user", **one)
            self.env.sync_tools()
            self.done.append((tool, one))

    def answer(self, node, out):
        """The action to take at a node."""
        user, phone, line = self.env.user_tools, self.phone, self.line
        bar, (speed, words) = user._check_status_bar(), user._run_speed_test()
        served = "No Signal" not in bar and "Airplane" not in bar
        sim, permissions = user._check_sim_status(), phone.app_statuses["messaging"].permissions
        plan = self.env.tools._get_plan_by_id(line.plan_id)
        for part, yes in [  # the first part that is in the node's name
            ("Decision_NoService", not served), ("AirplaneON", phone.airplane_mode), ("P1_S2_Decision_SIMMissing", sim == "missing"),
            ("SIMLocked", str(sim.value).startswith("locked")), ("SIMImproved", served), ("Restored1", served), ("P1_S3_Decision_Resolved", served),
            ("ServiceRestored", served), ("Decision_Suspended", line.status == "Suspended"), ("OverdueBill", self.overdue() is not None),
            ("NoConnection", speed is None), ("ConnectivityAfterData", speed is not None), ("Decision_Excellent", words == "Excellent"),
            ("S2_Decision_DataIssue", self.around.is_abroad), ("DataRoamingOFF", not phone.roaming_enabled),
            ("LineRoamingNotEnabled", not line.roaming_enabled), ("MobileDataOFF", not phone.data_enabled),
            ("DataExceeded", line.data_used_gb >= plan.data_limit_gb + line.data_refueling_gb), ("ChangePlan", False),
            ("ConfirmRefuel", line.data_refueling_gb + 2 <= 2), ("DataSaverON", phone.data_saver_mode),
            ("OldNetworkMode", phone.network_mode_preference in ("2g_only", "3g_only")), ("VPNActive", phone.vpn_connected),
            ("MMSWorks", user._can_send_mms()), ("Is2G", phone.network_technology_connected == "2G"), ("WifiCallingON", phone.wifi_calling_enabled),
            ("PermissionsMissing", not (permissions.storage and permissions.sms)), ("MMSC_Missing", phone.active_apn_settings.mmsc_url is None),
        ]:  # fmt: skip
            if part in node:
                return next((a for a in out if a.startswith("yes" if yes else "no")), "next")
        if "SuspensionType" in node:
            return "due_to_contract_end" if str(line.contract_end_date) < TODAY else "due_to_bill"
        if "Connectivity" in node or "RoamingWorks" in node or "MobileDataWorks" in node:
            want = "no" if speed is None else "yes_connectivity_restored_" + ("speed_excellent" if words == "Excellent" else "but")
            return next(a for a in out if a.startswith(want))
        return next(iter(out))

    def run(self, name, until=()):
        """Walks a chart as far as a node of until, or to its end, which it returns."""
        test = {"name": name, "steps": []}
        self.tests.append(test)
        edges, node = self.charts[name], "Start"
        tools = sorted({tool_of(n) for n in edges} - {None})
        while node in edges and node not in until:
            # A fix that the chart has elsewhere is refused here. One try for each box is enough.
            for tool in tools if (name, node) not in self.probed else ():
                if tool not in edges[node]:
                    test["steps"].append({"action": tool, "precheck": True, "expect": {"outcome": "reject", "codes": ["illegal_action"]}})
            self.probed.add((name, node))
            first = {"P2_1_S1_VerifyService": ("path1_no_service", ()), "P3_S1_VerifyNetworkService": ("path1_no_service", ()),
                     "P3_S2_VerifyMobileData": ("path2_mobile_data", ("P2_2_Start",))}.get(node)  # fmt: skip
            if first and self.run(*first) == "End_Escalate_Tech":
                return "End_Escalate_Tech"
            action = self.answer(node, edges[node])
            if tool := tool_of(node):
                self.call(tool)
            node = edges[node][action]
            test["steps"].append({"action": action, "expect": {"outcome": "approve", "state": node}})
        return node


# --- the writes ---------------------------------------------------------------------------


def plain(doc):
    return json.loads(doc.model_dump_json())


def snapshot(env, customer):
    """What the operator's own records say, as evidence."""
    db = env.tools.db
    return {"account": {"status": 200, "body": {
        "today": TODAY, "customer_id": customer.customer_id, "plans": [plain(p) for p in db.plans],
        "lines": [plain(l) for l in db.lines if l.line_id in customer.line_ids],
        "bills": [plain(b) for b in db.bills if b.bill_id in customer.bill_ids],
    }}}  # fmt: skip


def candidates(env, customer):
    """Every write of the agent's tools, on the customer's lines and bills and on those of one other customer."""
    other = next(c for c in env.tools.db.customers if c.customer_id != customer.customer_id)
    for who in (customer, other):
        key = {"customer_id": customer.customer_id}
        for line in who.line_ids if who is customer else other.line_ids[:1]:
            for tool in ("resume_line", "enable_roaming", "disable_roaming"):
                yield tool, {**key, "line_id": line}
            yield "suspend_line", {**key, "line_id": line, "reason": "The user asked for it."}
            for amount in (1.0, 2.0, 3.0):
                yield "refuel_data", {**key, "line_id": line, "gb_amount": amount}
        for bill in who.bill_ids if who is customer else other.bill_ids[:1]:
            yield "send_payment_request", {**key, "bill_id": bill}


def cases(number, task, env, fixes):
    """Golden cases: each candidate write, before and after each expected action that changes the operator's records."""
    customer = env.tools.get_customer_by_phone(env.user_tools.surroundings.phone_number)
    line = env.tools._get_line_by_phone(env.user_tools.surroundings.phone_number)
    transfer, rest, seen = fixes is None, [list(f) for f in fixes or []], set()
    while True:
        evidence = snapshot(env, customer)
        state = json.dumps(evidence)
        for n, (tool, data) in enumerate(candidates(env, customer) if state not in seen else ()):
            expected = [f for f in rest if (tool, data) in f]
            try:
                copy.deepcopy(env).tools.use_tool(tool, **data)
                kind = "unexpected_before_a_transfer" if transfer else "unexpected"
            except ValueError:
                kind = "tool_error"
            if expected:
                kind = "expected" if expected[0][0] == (tool, data) else "too_early"
            yield {
                "id": f"{number}.{len(seen)}.{n} {tool}", "group": f"{number} {task.id}"[:200], "tags": [kind, kind + ":" + tool], "split": "test",
                "workflow": {"ref": "telecom.yaml"}, "state": "identified", "action": tool, "data": data, "evidence": evidence,
                "context": {"customerId": customer.customer_id, "lineId": line.line_id},
                "expect": {"outcome": "approve" if kind == "expected" else "reject"}, "label": {"source": "synthetic", "by": "tau2-bench"},
            }  # fmt: skip
        seen.add(state)
        rest = [f for f in rest if f]
        if not rest:
            return
        tool, data = rest[0].pop(0)
        env.make_tool_call(tool, requestor="assistant" if tool in AGENT else "user", **data)
        env.sync_tools()


# --- the tasks ----------------------------------------------------------------------------


def tasks(wanted):
    """The wanted tasks, as tau2's own create_tasks.py makes them: the large files of tasks are not in every copy."""
    for manager in CHARTS:
        composed = sorted(compose_tasks(manager.selection_sets, manager.task_validator), key=lambda t: len(t.composed_from))
        for i, one in enumerate(composed):
            persona = list(PERSONAS)[i % len(PERSONAS)]
            if f"[{manager.name}]{one.name}[PERSONA:{persona}]" in wanted:
                yield manager, one, manager.create_task(one, persona)


def begin(task):
    env = get_environment()
    env.set_state(initialization_data=None, initialization_actions=task.initial_state.initialization_actions, message_history=[])
    return env


def main():
    base = set(json.loads((DATA / "split_tasks.json").read_text())["base"])
    small = {t["id"]: t for t in json.loads((DATA / "tasks_small.json").read_text())}
    charts = {name: read_chart(name) for name in CHARTS.values()}
    OUT.mkdir(parents=True, exist_ok=True)
    tests = {name: [] for name in charts}
    count = dict.fromkeys(["tasks", "resolved", "escalated", "solved", "same", "moves", "refused"], 0)
    unsolved, probed = [], set()
    with open(OUT / "writes.jsonl", "w") as out:
        for manager, composed, task in tasks(base | set(small)):
            if task.id in small and json.loads(task.model_dump_json())["evaluation_criteria"] != small.pop(task.id)["evaluation_criteria"]:
                sys.exit(f"{task.id}: the generator makes another task than tasks_small.json has")
            if task.id not in base:
                continue
            env = begin(task)
            fixes = None if None in composed.fix_funcs else [[(c.name, c.arguments) for c in f(env)] for f in composed.fix_funcs]
            for case in cases(count["tasks"], task, env, fixes):
                out.write(json.dumps(case) + "\n")
            walk = Walk(begin(task), charts, probed)
            end = walk.run(CHARTS[manager])
            for test in walk.tests:
                name, test["name"] = test["name"], f"{task.id} {len(tests[test['name']])}"
                tests[name].append(test)
                prechecks = sum(1 for s in test["steps"] if "precheck" in s)
                count["refused"] += prechecks
                count["moves"] += len(test["steps"]) - prechecks
            solved = end == "End_Escalate_Tech" if fixes is None else manager.run_assertions(walk.env, task)
            wrote = sorted(repr(c) for c in walk.done if c[0] in AGENT)
            want = sorted(repr((a.name, a.arguments)) for a in task.evaluation_criteria.actions if a.name in AGENT)
            count["tasks"] += 1
            count["resolved" if end == "End_Resolve" else "escalated"] += 1
            count["solved"] += solved
            count["same"] += wrote == want
            if not solved:
                unsolved.append((task.id, end))
    if small or count["tasks"] != len(base):
        sys.exit("the generator does not make all tasks of split_tasks.json and tasks_small.json")
    for name, edges in charts.items():
        (OUT / f"{name}.json").write_text(json.dumps(definition(name, edges), indent=1))
        (OUT / f"{name}.test.json").write_text(json.dumps({"workflow": f"{name}.json", "tests": tests[name]}, indent=1))
    print(f"Walks of the {count['tasks']} tasks of the split base through the charts: {count['moves']} moves, {count['refused']} fixes tried in another box.")
    print(f"They end resolved {count['resolved']} times, with a transfer {count['escalated']} times. The task is solved by {count['solved']},")
    print(f"and the agent's writes are exactly the expected ones in {count['same']}. Not solved:")
    for id, end in unsolved:
        print(f"  {id}: {end}")


main()
