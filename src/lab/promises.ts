// What does a chain promise, according to its configuration and result?
import { gatewayProbes } from './probes/gateway.ts';
import { interfaceProbes } from './probes/interface.ts';
import { neighbourProbes } from './probes/neighbour.ts';
import { outsideProbes } from './probes/outside.ts';
import { portProbes } from './probes/port.ts';
import type { Probe, Scene } from './probes/probe.ts';
import { rateProbes } from './probes/rate.ts';
import { sysctlProbes } from './probes/sysctl.ts';

/** Every probe, the cheap ones first. No plugin is known by name: each probe defines what promises it. */
export function promisesOf(scene: Scene): Probe[] {
  return [
    interfaceProbes,
    gatewayProbes,
    neighbourProbes,
    outsideProbes,
    portProbes,
    sysctlProbes,
    rateProbes,
  ].flatMap(probesOf => probesOf(scene));
}
