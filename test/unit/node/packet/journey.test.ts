// Is a mapped port judged by both where its packets arrive and at which port?
import { expect, test } from 'bun:test';
import type { Packet } from '../../../../src/node/doctor/filter/packet.ts';
import { judgeTranslation } from '../../../../src/node/packet/journey.ts';
import type { Site } from '../../../../src/node/packet/site.ts';

const PACKET: Packet = {
  ...{ family: 4, iif: 'eth0', oif: undefined, protocol: 6, source: '192.0.2.9', destination: '192.0.2.1' },
  ...{ isLocal: true, sourcePort: 1000, port: 8080, isReply: false, isTranslated: false },
};
const MAPPING = { repair: 'catena repair', address: '10.1.0.2', hostIP: undefined, containerPort: 80 };

test.each([
  ['10.1.0.2', 80, 'passes', undefined],
  ['10.1.0.2', 81, 'stops', 'catena repair'],
  ['10.1.0.3', 80, 'stops', 'catena repair'],
])('a rule that leads it to %s:%d: %s', (destination, port, state, mend) => {
  const passed = { packet: { ...PACKET, destination, port }, by: 'a rule' };
  const [first] = judgeTranslation({ name: 'node' } as Site, PACKET, passed, MAPPING);
  expect([first?.state, first?.mend]).toEqual([state, mend] as never);
});
