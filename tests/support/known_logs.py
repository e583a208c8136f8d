"""A few made-up lines of each public log that has a schema, as its publisher writes them."""

from __future__ import annotations

_AVAZU = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,"
    "device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21\n"
)
_IPINYOU = (
    "click weekday hour bidid timestamp logtype ipinyouid useragent IP region city adexchange domain url"
    " urlid slotid slotwidth slotheight slotvisibility slotformat slotprice creative bidprice payprice"
    " keypage advertiser usertag\n"
).replace(" ", "\t")


def _ipinyou(*values: str) -> str:
    return "\t".join(values) + "\n"


KNOWN_LOGS = {
    "criteo": (
        "0\t1\t-1\t\t5\t1382\t4\t15\t2\t181\t1\t2\t\t2" + "\t68fd1e64" * 26 + "\n"
        "1\t2\t0\t44\t1\t102\t8\t2\t2\t4\t1\t1\t\t4" + "\t05123456" * 25 + "\t\n"
    ),
    "avazu": (
        f"{_AVAZU}"
        "1000009418151094273,0,14102100,1005,0,1fbe01fe,f3845767,28905ebd,ecad2386,7801e8d9,07d7df22,a99f214a,"
        "ddd2926e,44956a24,1,2,15706,320,50,1722,0,35,-1,79\n"
        "10000169349117863715,1,14102323,1002,1,85f751fd,c4e18dd6,50e219e0,9c13b419,2347f47a,f95efa07,a99f214a,"
        "96809ac8,711ee120,1,0,15704,320,50,1722,0,35,100084,79\n"
    ),
    "talkingdata": (
        "ip,app,device,os,channel,click_time,attributed_time,is_attributed\n"
        "83230,3,1,13,379,2017-11-06 14:32:21,,0\n"
        "17357,19,0,24,213,2017-11-06 23:59:59,2017-11-07 00:04:01,1\n"
    ),
    "ipinyou": (
        _IPINYOU
        + _ipinyou(
            *("0", "4", "00", "81aced04", "20130606000104828", "1", "Vhk7ZAnx", "windows_ie", "115.45.195.*"),
            *("216", "228", "2", "trqRTJn7", "null", "null", "mm_1", "300", "250", "Na", "Na", "0", "7323"),
            *("294", "201", "null", "2259", "10057,10063,10075"),
        )
        + _ipinyou(
            *("1", "4", "13", "b03deb40", "20130606131405008", "1", "VhL16V8c", "windows_chrome", "1.2.3.*"),
            *("0", "", "1", "null", "5F97t5E0", "null", "mm_2", "728", "90", "2", "1", "31", "7330", "277"),
            *("60", "0f951a03", "2259", "null"),
        )
    ),
    "open-bandit": (
        ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,user_feature_2,"
        "user_feature_3,user-item_affinity_0,user-item_affinity_1\n"
        "0,2019-11-24 00:00:00.004101+00:00,79,2,0,0.0125,81ce123c,03a5648a,c2e4f76c,9bde591f,0.0,4.0\n"
        "1,2019-11-24 00:00:23.104111+00:00,7,1,1,0.0125,81ce123c,2d03db55,06128286,9bde591f,0.5,0.0\n"
    ),
}
