#!/usr/bin/env python3
"""EC2 requests that are signed now and sent later, with nothing but the standard library.

    signed.py sign [--ahead SECONDS] ACTION [NAME=VALUE]...   prints a signed request as JSON
    signed.py send                                            sends one from stdin; prints status and code
    signed.py burst --seconds S --at-once N ACTION [NAME=VALUE]...
                                                              sends as fast as it can; prints what passed when

Credentials and region come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION.
"""

import argparse
import concurrent.futures
import datetime
import hashlib
import hmac
import json
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

VERSION = "2016-11-15"


def endpoint(region: str) -> str:
    for name in ("AWS_ENDPOINT_URL_EC2", "AWS_ENDPOINT_URL"):
        if os.environ.get(name):
            return os.environ[name].rstrip("/") + "/"
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://ec2.{region}.{suffix}/"


def sign(action: str, parameters: list[str], ahead: float) -> dict:
    """A request whose signature says that it is `ahead` seconds later than it is."""
    region = os.environ["AWS_REGION"]
    url = endpoint(region)
    host = urllib.parse.urlsplit(url).netloc
    pairs = [("Action", action), ("Version", VERSION)]
    pairs += [tuple(one.split("=", 1)) for one in parameters]
    body = urllib.parse.urlencode(pairs)
    when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=ahead)
    stamp, day = when.strftime("%Y%m%dT%H%M%SZ"), when.strftime("%Y%m%d")
    headers = {
        "content-type": "application/x-www-form-urlencoded; charset=utf-8",
        "host": host,
        "x-amz-date": stamp,
    }
    if os.environ.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = os.environ["AWS_SESSION_TOKEN"]
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    digest = hashlib.sha256(body.encode()).hexdigest()
    canonical = f"POST\n/\n\n{lines}\n{names}\n{digest}"
    scope = f"{day}/{region}/ec2/aws4_request"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}"
    key = ("AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"]).encode()
    for part in (day, region, "ec2", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={os.environ['AWS_ACCESS_KEY_ID']}/{scope}, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    return {"url": url, "headers": headers, "body": body}


def send(request: dict) -> dict:
    """The result: the status, the error code or `ok`, and the message."""
    call = urllib.request.Request(
        request["url"], data=request["body"].encode(), headers=request["headers"], method="POST"
    )
    try:
        with urllib.request.urlopen(call, timeout=20) as answer:
            return {"status": answer.status, "code": "ok", "message": ""}
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        code = re.search(r"<Code>(.*?)</Code>", text)
        message = re.search(r"<Message>(.*?)</Message>", text, re.DOTALL)
        return {
            "status": error.code,
            "code": code.group(1) if code else "unknown",
            "message": message.group(1) if message else text[:200],
        }
    except OSError as error:
        return {"status": 0, "code": "no-answer", "message": str(error)}


def burst(action: str, parameters: list[str], seconds: float, at_once: int) -> dict:
    """How many passed before the first was throttled, and how many a second after that."""
    begun = time.monotonic()
    seen: list[tuple[float, str]] = []

    def one() -> None:
        while time.monotonic() - begun < seconds:
            code = send(sign(action, parameters, 0))["code"]
            seen.append((time.monotonic() - begun, code))

    with concurrent.futures.ThreadPoolExecutor(at_once) as threads:
        for done in [threads.submit(one) for _ in range(at_once)]:
            done.result()
    throttled = [at for at, code in seen if code == "RequestLimitExceeded"]
    first = min(throttled, default=None)
    passed = [at for at, code in seen if code != "RequestLimitExceeded"]
    codes: dict[str, int] = {}
    for _, code in seen:
        codes[code] = codes.get(code, 0) + 1
    after = [at for at in passed if first is not None and at > first]
    left = seconds - first if first is not None else 0
    return {
        "sent": len(seen),
        "codes": codes,
        "passed_before_throttled": None if first is None else len(passed) - len(after),
        "first_throttled_after_s": None if first is None else round(first, 2),
        "passed_per_s_after": round(len(after) / left, 2) if left > 5 else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ways = parser.add_subparsers(dest="way", required=True)
    signing = ways.add_parser("sign")
    signing.add_argument("--ahead", type=float, default=0)
    bursting = ways.add_parser("burst")
    bursting.add_argument("--seconds", type=float, required=True)
    bursting.add_argument("--at-once", type=int, default=8)
    for way in (signing, bursting):
        way.add_argument("action")
        way.add_argument("parameters", nargs="*")
    ways.add_parser("send")
    told = parser.parse_args()
    if told.way == "sign":
        answer = sign(told.action, told.parameters, told.ahead)
    elif told.way == "burst":
        answer = burst(told.action, told.parameters, told.seconds, told.at_once)
    else:
        answer = send(json.load(sys.stdin))
    json.dump(answer, sys.stdout)
    print()


if __name__ == "__main__":
    main()
