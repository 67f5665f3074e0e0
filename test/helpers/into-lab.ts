// How does a program inside a fake host reach a server of the test?
import net from 'node:net';
import type { Lab } from './netns.ts';
import { until } from './until.ts';

/** Makes a port of 127.0.0.1 of the test reachable as the same port inside the fake host. @returns a function that ends it */
export async function bringIntoLab(lab: Lab, port: number): Promise<() => void> {
  const path = `${lab.tmp}/server.sock`;
  const open = new Set<net.Socket>();
  const server = net.createServer(inside => {
    const outside = net.connect(port, '127.0.0.1');
    for (const [from, to] of [
      [inside, outside],
      [outside, inside],
    ] as const) {
      open.add(from);
      from.on('error', () => to.destroy());
      from.on('close', () => to.destroy());
      from.pipe(to);
    }
  });
  await new Promise<void>(resolve => server.listen(path, resolve));
  const script = `const net = require('node:net');
    net.createServer(inside => {
      const outside = net.connect(${JSON.stringify(path)});
      for (const [from, to] of [[inside, outside], [outside, inside]]) {
        from.on('error', () => to.destroy());
        from.on('close', () => to.destroy());
        from.pipe(to);
      }
    }).listen(${port}, '127.0.0.1');`;
  await lab.run(lab.host, ['ip', 'link', 'set', 'lo', 'up']);
  const forwarder = lab.start(lab.host, [process.execPath, '-e', script]);
  await until(async () => (await lab.run(lab.host, ['ss', '-Htln', `sport = :${port}`])).stdout !== '');
  return () => {
    forwarder.kill();
    server.close();
    for (const socket of open) socket.destroy();
  };
}
