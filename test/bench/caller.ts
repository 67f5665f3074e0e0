// How does a runtime run a chain: one process for each executable, one after the other, as libcni does?
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Container, Lab, Row } from '../helpers/netns.ts';

/** One verb of a chain; `cap` are capability arguments. */
export type RunVerb = (verb: 'add' | 'check' | 'del', container: Container, cap?: object) => Promise<void>;

/**
 * A caller in this process, where libcni cannot be built: the same order, environment and requests. ADD passes each result on and
 * keeps the last one in a file, from which CHECK and DEL take it.
 * @param binDir directory of the executables
 */
export function callerRun(lab: Lab, list: Row, binDir: string): RunVerb {
  return async (verb, container, cap = {}) => {
    const file = `${lab.tmp}/caller/results/${list.name}-${container.id}-eth0`;
    const plugins: readonly Row[] = verb === 'del' ? list.plugins.toReversed() : list.plugins;
    let result: unknown = verb === 'add' ? undefined : JSON.parse(readFileSync(file, 'utf8')).result;
    for (const plugin of plugins) {
      const reply = await lab.plugin(plugin.type, {
        command: verb.toUpperCase(),
        conf: { cniVersion: list.cniVersion, name: list.name, ...offered(plugin, cap) },
        prevResult: result,
        container,
        binDir,
      });
      if (reply.exitCode !== 0)
        throw new Error(`Cannot ${verb} with ${binDir}/${plugin.type}: ${reply.stdout}`);
      if (verb === 'add') result = reply.result;
    }
    if (verb === 'add') keep(file, { kind: 'cniCacheV1', containerId: container.id, result });
    if (verb === 'del') rmSync(file);
  };
}

/** A plugin's entry with the arguments of the capabilities that it declares. */
function offered(plugin: Row, cap: object): Row {
  const declared = Object.entries(cap).filter(([name]) => plugin.capabilities?.[name] === true);
  return declared.length ? { ...plugin, runtimeConfig: Object.fromEntries(declared) } : plugin;
}

function keep(file: string, content: object): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, JSON.stringify(content));
}
