// What replaces the daemon when only its client is measured?
import { mkdirSync, statSync, utimesSync } from 'node:fs';
import { dirname } from 'node:path';
import { BegunCalls } from '../../src/daemon/calls.ts';
import { socketPathOf, wireOf } from '../../src/daemon/protocol.ts';
import { decodeRequest, encodeAnswer } from '../../src/daemon/wire.ts';
import { directories, type Lab } from '../helpers/netns.ts';

/** As long as the output of the chain's ADD. */
const RESULT = {
  cniVersion: '1.0.0',
  interfaces: [
    { name: 'br0', mac: '02:00:00:00:00:01' },
    { name: 'veth00000000', mac: '02:00:00:00:00:02' },
    { name: 'eth0', mac: '02:00:00:00:00:03', sandbox: '/run/netns/none' },
    { name: 'bwp000000000000', mac: '02:00:00:00:00:04' },
  ],
  ips: [
    { address: '10.88.0.2/16', gateway: '10.88.0.1', interface: 2 },
    { address: 'fd88::2/64', gateway: 'fd88::1', interface: 2 },
  ],
  routes: [
    { dst: '0.0.0.0/0', gw: '10.88.0.1' },
    { dst: '::/0', gw: 'fd88::1' },
  ],
};

/** Replies to every command of a fake host as an infinitely fast daemon would: nothing is attached or deleted. */
export function answerAtOnce(lab: Lab): { stop(): void } {
  const { CATENA_RUN_DIR = '' } = directories(lab.tmp);
  const path = socketPathOf(CATENA_RUN_DIR);
  const unix = wireOf(path);
  mkdirSync(dirname(unix), { recursive: true, mode: 0o700 });
  const listener = Bun.listen({
    unix,
    socket: {
      data(socket, bytes) {
        const args = decodeRequest(bytes)?.args ?? [];
        const stdout = args[0] === 'add' ? `${JSON.stringify(RESULT, null, 2)}\n` : '';
        socket.end(encodeAnswer({ exitCode: 0, stdout, stderr: '' }));
      },
    },
  });
  // Clients ask no daemon without a list of its calls, which they find by this time, as in door.ts.
  const time = (Date.now() + 0.5) / 1000;
  utimesSync(unix, time, time);
  const calls = new BegunCalls(path, statSync(unix));
  return {
    stop() {
      listener.stop();
      calls.close();
    },
  };
}
