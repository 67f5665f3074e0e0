import { expect, test } from 'bun:test';
import { createSession, findRefusal } from '../../../src/ui/server.ts';

const PORT = 4567;
const visit = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' };

const refuse = (headers: Record<string, string>, path = '/folder/', method = 'GET') => {
  const request = new Request(`http://127.0.0.1:${PORT}${path}`, {
    method,
    headers: { host: `127.0.0.1:${PORT}`, ...headers },
  });
  return findRefusal(request, PORT)?.status;
};

test.each<[string, number | undefined]>([
  [`127.0.0.1:${PORT}`, undefined],
  [`localhost:${PORT}`, undefined],
  ['127.0.0.1', 421],
  [`127.0.0.1:${PORT + 1}`, 421],
  [`node.example:${PORT}`, 421],
  [`127.0.0.1.example:${PORT}`, 421],
  [`localhost.example:${PORT}`, 421],
  ['', 421],
])('host "%s" is answered with %p', (host, status) => {
  expect(refuse({ host })).toBe(status as number);
});

test('a browser leaves the port out if it is 80', () => {
  const ask = (port: number) =>
    findRefusal(new Request('http://127.0.0.1/', { headers: { host: '127.0.0.1' } }), port)?.status;
  expect([ask(80), ask(8080)]).toEqual([undefined, 421]);
});

test.each(['POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'])('%s is refused', method => {
  expect(refuse({}, '/', method)).toBe(405);
});

test('pages of other origins are refused; a link of theirs may open the address with the token', () => {
  for (const site of ['cross-site', 'same-site']) {
    expect(refuse({ 'sec-fetch-site': site })).toBe(403);
    expect(refuse({ ...visit, 'sec-fetch-site': site })).toBe(403);
    expect(refuse({ ...visit, 'sec-fetch-site': site }, '/?token=a')).toBeUndefined();
    expect(refuse({ ...visit, 'sec-fetch-site': site, 'sec-fetch-dest': 'iframe' }, '/?token=a')).toBe(403);
  }
  expect(refuse({ 'sec-fetch-site': 'same-origin' })).toBeUndefined();
  expect(refuse({ 'sec-fetch-site': 'none' })).toBeUndefined();
});

test('the token is exchanged once, for a cookie of this session', () => {
  const [session, other] = [createSession(), createSession()];
  expect(session.redeem('')).toBeUndefined();
  expect(session.redeem(other.token)).toBeUndefined();
  const cookie = session.redeem(session.token) ?? '';
  const [pair = '', ...attributes] = cookie.split('; ');
  expect(attributes).toEqual([`Path=${session.folder}`, 'HttpOnly', 'SameSite=Strict']);
  expect(session.redeem(session.token)).toBeUndefined();
  expect(session.admits(`a=b; ${pair}`)).toBe(true);
  expect(other.admits(pair)).toBe(false);
});

test.each([null, '', 'catena-ui', 'catena-ui=', 'catena-ui=x', 'other=y'])(
  'the cookie %p admits nothing',
  cookies => {
    const session = createSession();
    expect(session.admits(cookies)).toBe(false);
    session.redeem(session.token);
    expect(session.admits(cookies)).toBe(false);
  },
);

test('secrets are long, and never the same', () => {
  const [a, b] = [createSession(), createSession()];
  expect(a.token).toMatch(/^[\w-]{43}$/);
  expect(a.folder).toMatch(/^\/[\w-]{43}\/$/);
  expect(new Set([a.token, b.token, a.folder.slice(1, -1), b.folder.slice(1, -1)]).size).toBe(4);
});
