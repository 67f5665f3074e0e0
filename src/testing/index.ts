// What does a plugin author's test import?
export type { CallOptions, Plugin, Reply, Verb } from './call.ts';
export { type Fault, listKernelRequests, withFaults } from './fault.ts';
export {
  type Container,
  createHost,
  diffKernelStates,
  type KernelState,
  type Namespace,
  type TestHost,
  type Watch,
  withHost,
} from './host.ts';
export type { Finished, RunOptions } from './run-in.ts';
export { type FaultReport, type FaultTrial, failAtEveryRequest, sweepFaults } from './sweep.ts';
