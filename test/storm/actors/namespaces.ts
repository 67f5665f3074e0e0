// How do containers' namespaces come and go, under the same few paths?

import fs from 'node:fs';
import type { Device } from '../look.ts';
import type { Model } from '../model.ts';
import { slotName, slotPath } from '../networks.ts';
import { tool } from '../node.ts';
import { Asker } from './asker.ts';
import { Listeners } from './listeners.ts';
import { OK, type Outcome, SKIPPED } from './outcome.ts';

/** The kernel gives a number back in the background: how often a new namespace is tried until it has the old one's. */
const TRIES = 3;

/** The namespaces of one node. */
export class Namespaces {
  readonly #model: Model;
  readonly #listeners = new Listeners();
  /** `ip` in each namespace that was looked at. */
  readonly #askers = new Map<number, Asker>();
  /** Numbers that came back. */
  reused = 0;

  constructor(model: Model) {
    this.#model = model;
  }

  get pids(): number[] {
    return [...this.#listeners.pids, ...[...this.#askers.values()].flatMap(({ pids }) => pids)];
  }

  async make(index: number): Promise<void> {
    const slot = this.#model.slot(index);
    await tool(['ip', 'netns', 'add', slotName(index)]);
    // A connection whose way was cut while it was closing belongs to no process, and keeps the namespace for two minutes otherwise.
    await tool(['ip', 'netns', 'exec', slotName(index), 'sysctl', '-qw', 'net.ipv4.tcp_orphan_retries=1']);
    slot.generation += 1;
    slot.alive = true;
  }

  async remove(index: number): Promise<Outcome> {
    const slot = this.#model.slot(index);
    if (!slot.alive) return SKIPPED;
    // A namespace lives as long as a socket or a process is in it.
    await this.#listeners.close(index);
    await this.#askers.get(index)?.end();
    this.#askers.delete(index);
    slot.alive = false;
    await tool(['ip', 'netns', 'delete', slotName(index)]);
    return OK;
  }

  /** Another namespace under the path, if possible with the number of the one before. */
  async remake(index: number): Promise<Outcome> {
    const before = this.#model.slot(index).alive ? fs.statSync(slotPath(index)).ino : undefined;
    await this.remove(index);
    for (let attempt = 1; ; attempt++) {
      await this.make(index);
      if (before === undefined) break;
      if (fs.statSync(slotPath(index)).ino === before) {
        this.reused += 1;
        break;
      }
      if (attempt === TRIES) break;
      this.#model.slot(index).alive = false;
      await tool(['ip', 'netns', 'delete', slotName(index)]);
      await Bun.sleep(attempt * 5);
    }
    return OK;
  }

  /** What the namespace under the path would say of itself. */
  tokenOf(index: number): string {
    return `${slotName(index)}#${this.#model.slot(index).generation}`;
  }

  /** Has something listen in the namespaces. */
  listen(slots: readonly number[]): Promise<void> {
    return this.#listeners.open(new Map(slots.map(slot => [slot, this.tokenOf(slot)])));
  }

  /** Devices and addresses in a namespace. */
  devicesOf(index: number): Promise<readonly Device[]> {
    return this.#askerOf(index).ask<Device>('addr show');
  }

  /** The sources by which a namespace chooses other tables of routes. */
  async sourcesOf(index: number): Promise<readonly string[]> {
    const rules = await this.#askerOf(index).ask<{ readonly src: string }>('rule show');
    return rules.map(({ src }) => src).filter(src => src !== 'all');
  }

  #askerOf(index: number): Asker {
    const asker = this.#askers.get(index) ?? new Asker('ip', '-n', slotName(index), '-j', '-d');
    this.#askers.set(index, asker);
    return asker;
  }
}
