// Which kinds of answers are there?
//
// The schemas describe what is printed, for the compiler, the tests and the build, which publishes them as JSON Schema. A command imports
// only types from here, so no start of a program pays for zod.
import type { ValueOf } from '../../cni/json.ts';
import { NodeModel } from '../../node/model.ts';
import * as attachment from './attachment.ts';
import * as daemon from './daemon.ts';
import * as executables from './executables.ts';
import * as node from './node.ts';

/** By `kind`. One whose name ends with `List` has nothing but `items`. */
export const KINDS = {
  Bundle: node.Bundle,
  ChainPlan: executables.ChainPlan,
  ClusterPoolList: node.ClusterPoolList,
  CodeExplanation: executables.CodeExplanation,
  Comparison: executables.Comparison,
  Conformance: executables.Conformance,
  DaemonEnd: daemon.DaemonEnd,
  DaemonProcess: daemon.DaemonProcess,
  DaemonState: daemon.DaemonState,
  DaemonStatus: daemon.DaemonStatus,
  Diagnosis: node.Diagnosis,
  GarbagePlan: node.GarbagePlan,
  GoneList: node.GoneList,
  HandoverList: node.HandoverList,
  Installation: node.Installation,
  Lease: node.Lease,
  LeaseList: node.LeaseList,
  LogEntry: node.LogEntry,
  LogEntryList: node.LogEntryList,
  NetworkExplanation: executables.NetworkExplanation,
  NetworkFiles: node.NetworkFiles,
  NetworkVersions: executables.NetworkVersions,
  NewNetwork: executables.NewNetwork,
  Node: NodeModel,
  Owners: node.Owners,
  PacketWalk: node.PacketWalk,
  Ping: daemon.PingAnswer,
  RepairReport: node.RepairReport,
  Replacement: executables.Replacement,
  Request: daemon.Request,
  RequestList: daemon.RequestList,
  SurveyList: executables.SurveyList,
  TrafficReport: node.TrafficReport,
  Trial: executables.Trial,
  UiAddress: daemon.UiAddress,
  Uninstallation: node.Uninstallation,
  UnsettledList: node.UnsettledList,
  Validation: executables.Validation,
  Warning: attachment.Warning,
} as const;

/** Others that are printed, without an envelope. */
export const DOCUMENTS = { Failure: attachment.Failure } as const;

/** The name of a kind. */
export type AnswerKind = keyof typeof KINDS;

/** What an answer of a kind has beside its envelope. */
export type AnswerOf<K extends AnswerKind> = ValueOf<(typeof KINDS)[K]>;
