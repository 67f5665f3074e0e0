// Which kinds of answers are there?
//
// The schemas describe what is printed, for the compiler, the tests and the build, which publishes them as JSON Schema. A command imports
// only types from here, so no start of a program pays for zod.
import type { ValueOf } from '../../cni/json.ts';
import { NodeModel } from '../../node/model.ts';
import { Failure, Warning } from './attachment.ts';
import {
  DaemonEnd,
  DaemonProcess,
  DaemonState,
  DaemonStatus,
  PingAnswer,
  Request,
  RequestList,
  UiAddress,
} from './daemon.ts';
import {
  ChainPlan,
  CodeExplanation,
  Comparison,
  Conformance,
  NetworkExplanation,
  NetworkVersions,
  NewNetwork,
  Replacement,
  SurveyList,
  Trial,
  Validation,
} from './executables.ts';
import {
  Bundle,
  ClusterPoolList,
  Diagnosis,
  GarbagePlan,
  GoneList,
  HandoverList,
  Installation,
  Lease,
  LeaseList,
  LogEntry,
  LogEntryList,
  NetworkFiles,
  Owners,
  PacketWalk,
  RepairReport,
  TrafficReport,
  Uninstallation,
  UnsettledList,
} from './node.ts';

/** By `kind`. One whose name ends with `List` has nothing but `items`. */
export const KINDS = {
  Bundle,
  ChainPlan,
  ClusterPoolList,
  CodeExplanation,
  Comparison,
  Conformance,
  DaemonEnd,
  DaemonProcess,
  DaemonState,
  DaemonStatus,
  Diagnosis,
  GarbagePlan,
  GoneList,
  HandoverList,
  Installation,
  Lease,
  LeaseList,
  LogEntry,
  LogEntryList,
  NetworkExplanation,
  NetworkFiles,
  NetworkVersions,
  NewNetwork,
  Node: NodeModel,
  Owners,
  PacketWalk,
  Ping: PingAnswer,
  RepairReport,
  Replacement,
  Request,
  RequestList,
  SurveyList,
  TrafficReport,
  Trial,
  UiAddress,
  Uninstallation,
  UnsettledList,
  Validation,
  Warning,
} as const;

/** Others that are printed, without an envelope. */
export const DOCUMENTS = { Failure } as const;

/** The name of a kind. */
export type AnswerKind = keyof typeof KINDS;

/** What an answer of a kind has beside its envelope. */
export type AnswerOf<K extends AnswerKind> = ValueOf<(typeof KINDS)[K]>;
