import { expect, test } from 'bun:test';
import net from 'node:net';
import { listenForMetrics, parseMetricsAddress } from '../../../src/daemon/metrics-listener.ts';
import { until } from '../../helpers/until.ts';

/** An address of this process: on one that others use, a port that is free at a look may be theirs a moment later. */
const HOST = `127.${1 + (process.pid >> 16)}.${(process.pid >> 8) & 255}.${1 + (process.pid % 254)}`;

test.each([
  ['127.0.0.1:9464', '127.0.0.1', 9464],
  ['[fd00::5]:80', 'fd00::5', 80],
  // As Kubernetes expands $(POD_IP):9464.
  ['fd00::5:9464', 'fd00::5', 9464],
  ['::1:65535', '::1', 65_535],
  ['*:9464', '::', 9464],
])('parseMetricsAddress() takes %s', (text, hostname, port) => {
  expect(parseMetricsAddress(text)).toEqual({ hostname, port });
});

test.each([
  ['9464', 'expected <address>:<port>'],
  ['127.0.0.1', 'expected <address>:<port>'],
  ['127.0.0.1:0', 'expected <address>:<port>'],
  ['127.0.0.1:65536', 'expected <address>:<port>'],
  [':9464', '"" is not an IP address'],
  ['localhost:9464', '"localhost" is not an IP address'],
  ['[127.0.0.1]:9464', '"[127.0.0.1]" is not an IP address'],
  ['0.0.0.0:9464', 'every address of this host; write "*:9464"'],
  [':::9464', 'every address of this host'],
  ['[::]:9464', 'every address of this host'],
  ['[::ffff:0.0.0.0]:9464', 'every address of this host'],
])('parseMetricsAddress() refuses %s', (text, problem) => {
  expect(() => parseMetricsAddress(text)).toThrow(problem);
});

test('listenForMetrics() waits for an address that another process has, and says so once', async () => {
  const port = 9464;
  const other = net.createServer().listen(port, HOST);
  await until(() => other.listening);
  const told: string[] = [];
  const close = listen(port, told);
  try {
    await Bun.sleep(1_500);
    expect(told).toEqual(['failing']);
    other.close();
    await until(() => told.length > 1);
    expect(told).toEqual(['failing', 'listening']);
    expect(await (await fetch(`http://${HOST}:${port}/healthz`)).text()).toBe('ok\n');
  } finally {
    close();
    other.close();
  }
  await expect(fetch(`http://${HOST}:${port}/healthz`)).rejects.toThrow();
});

test('listenForMetrics() makes one page for scrapers that come at the same time', async () => {
  const port = 9465;
  let pages = 0;
  const close = listen(port, [], async () => {
    pages++;
    await Bun.sleep(300);
    return 'page\n';
  });
  try {
    const read = async () => (await fetch(`http://${HOST}:${port}/metrics`)).text();
    expect(await Promise.all([read(), read(), read()])).toEqual(['page\n', 'page\n', 'page\n']);
    expect(pages).toBe(1);
    await read();
    expect(pages).toBe(2);
  } finally {
    close();
  }
});

test('listenForMetrics() keeps 16 connections, of which the oldest goes for another one', async () => {
  const port = 9466;
  const close = listen(port, [], async () => 'x'.repeat(3_000_000));
  const closed: number[] = [];
  const strangers = Array.from({ length: 60 }, (_, i) => {
    const stranger = net.connect(port, HOST).on('error', () => {});
    return stranger.on('close', () => closed.push(i));
  });
  try {
    await until(() => closed.length >= 60 - 16);
    expect(await (await fetch(`http://${HOST}:${port}/healthz`)).text()).toBe('ok\n');
    expect((await (await fetch(`http://${HOST}:${port}/metrics`)).text()).length).toBe(3_000_000);
    expect(closed.length).toBeLessThanOrEqual(60 - 14);
    expect(closed.every(i => i < 60 - 14)).toBe(true);
    const said = (text: string) =>
      new Promise<string>(resolve => {
        const client = net.connect(port, HOST, () => client.write(text));
        client.on('data', data => resolve(data.toString().split('\r\n')[0] ?? ''));
        client.on('error', () => {}).on('close', () => resolve('closed'));
      });
    expect(await said('no request\r\n\r\n')).toStartWith('HTTP/1.1 400');
    expect(await said('GET /metrics HTTP/1.1\r\ncontent-length: 5\r\n\r\n')).toStartWith('HTTP/1.1 413');
    expect(await said('GET http://x/metrics HTTP/1.1\r\n\r\n')).toStartWith('HTTP/1.1 400');
    expect(await said(`GET /metrics HTTP/1.1\r\nx: ${'y'.repeat(20_000)}`)).toBe('closed');
  } finally {
    for (const stranger of strangers) stranger.destroy();
    close();
  }
});

function listen(port: number, told: string[], render = async () => ''): () => void {
  return listenForMetrics(
    { hostname: HOST, port },
    { contentType: 'text/plain', render },
    { failing: () => told.push('failing'), listening: () => told.push('listening') },
  );
}
