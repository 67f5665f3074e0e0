// What does a plugin author's test import?
export type { CallOptions, Finished, Plugin, Reply, RunOptions, Verb } from './host.ts';
export {
  type Container,
  createHost,
  diffKernelStates,
  type Fault,
  type KernelState,
  listKernelRequests,
  type Namespace,
  type TestHost,
  type Watch,
  withFaults,
  withHost,
} from './host.ts';
export { type FaultReport, type FaultTrial, failAtEveryRequest, sweepFaults } from './sweep.ts';
