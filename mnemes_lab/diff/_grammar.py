"""Word lists of the rules, about language: small words, negation, numbers and times.

English, with the negators of some other languages; Chinese has lists of its own, because it is
written without spaces and its negators are parts of other words too.
"""

from __future__ import annotations

from mnemes_lab.diff._words import group, words

# --- small words --------------------------------------------------------------------------------
STOP = group(
    "a an the least few several many this that these those it its itself he she they his her their"
    " him them there here who whom whose which what where when how why of as than then so such very"
    " really quite just also too be been being am own known any yet anymore each other another"
    " only even still already again s ll re ve d der die das ein eine le la les un une el los las"
    " il lo ne"
)
FIRST_PERSON = group("i my me mine we us our")
PREPOSITIONS = group(
    "in on at by for from with to into onto over under up down out off through along across"
    " about around above below behind before after between beside against during within toward"
    " towards per via among upon beyond past away"
)
AUXILIARIES = group("is are has have do does was were had did will shall gets ist sind est")
FUTURE = group("will shall wont")
PAST = frozenset(["was", "were", "had", "did"])
BOUNDS = group("but while whereas because although though however who which . ; , ! ? :")
POSSIBLE = group("may might could perhaps maybe possibly probably")
ABLE = frozenset(["can", "able"])
OBLIGED = group("must should ought shall obliged")
ATTITUDE = group("want hope plan try attempt intend wish consider aim")
HYPOTHETICAL = group("if would unless suppose supposing imagine hypothetically")
PRESENT = group("is are am has have do does")
FORMER = group("formerly originally previously former earlier once initially historically")
UNIVERSAL = group("all every each always everybody everyone everything both")
PARTIAL = group("some most sometimes often another half mainly mostly")

# What is said with these may be true of several things at once, unless it is under way.
LISTED = group(
    "speak know like love prefer hate allergic intolerant certify license approve qualify sell"
    " offer serve stock accept take water feed contain include show visit own collect grow teach"
    " learn study play drink eat cover support import export suit recommend treat grant"
)

# Predicates that may have several objects, whatever they are.
LIST_NOUNS = group(
    "language hobby friend sibling pet member ingredient tag interest skill allergy symptom"
    " topic note child colleague"
)
# Prepositions after which a predicate has one object: made of, travels by, lives in.
ONE_OBJECT = group("at by with in on until from of near under")
# What happens once: a date or year beside it is what is said of it.
EVENTS = group(
    "bear move found open build die marry begin stop join retire launch complete expire due"
    " schedule plan book elect appoint arrive leave reopen"
)

# What happens to a value that is said to go from one to another.
CHANGES = group(
    "move change raise lower rise fall increase decrease postpone shift delay reschedule bring"
    " drop reduce correct update"
)
ARTICLES = group("the a an this that these those my his her its our their your")
PRONOUNS = group("i you he she it we they")

VAGUE = group("a an some one several many few another")

# --- negation -----------------------------------------------------------------------------------
NEGATORS = group(
    "not no never nobody none nothing neither nor cannot without noone nowhere hardly barely"
    " scarcely dont doesnt didnt isnt arent wasnt werent cant wont wouldnt shouldnt hasnt havent"
    " hadnt nicht kein keine keinen keiner nie niemand nichts ohne pas jamais aucun aucune sans"
    " nunca nadie ningún ninguna não niet geen non"
)
# Followed by "to", "that" or a verb in -ing these turn what follows round.
TURNERS = group(
    "deny forget fail refuse avoid lack doubt wrong false untrue unlikely impossible unable"
    " neglect mistaken free"
)
# Between a negator and "that" these only carry the negation on.
CARRIERS = group("chance way case true say claim think believe question doubt possible")
# After "no" or "not" these leave nothing denied.
HARMLESS_NEXT = group(
    "only merely simply just least fewer less later more matter doubt problem until but"
)

# --- Chinese: words kept whole, and which of them deny ------------------------------------------
HAN_WHOLE = group(
    "不久 不仅 不但 不断 不同 不过 不管 不论 不锈钢 不错 不少 差不多 对不起 无论 无线 无人机"
    " 非常 非洲 除非 未来 别人 别的 特别 区别 级别 没关系 不得不 不能不 没有 不再 从不 从未"
    " 打开 关闭 开启 运行 停止 正常 故障 到达 离开 上升 下降 允许 禁止 安全 危险"
)
HAN_DENY = group("不 没 没有 未 无 非 别 勿 不再 从不 从未")
HAN_OPPOSITE = (
    "打开 开启 开 | 关闭 关 ; 运行 | 停止 故障 ; 正常 | 故障 ; 到达 | 离开 ; 上升 | 下降"
    " ; 允许 | 禁止 ; 安全 | 危险 ; 左 | 右 ; 热 | 冷 ; 大 | 小 ; 高 | 低 ; 满 | 空 ; 有 | 没有"
)

# --- numbers and times ---------------------------------------------------------------------------
NUMBER_WORDS = {
    word: value
    for value, word in enumerate(
        words(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen"
            " fourteen fifteen sixteen seventeen eighteen nineteen"
        )
    )
} | {
    word: 10 * (value + 2)
    for value, word in enumerate(words("twenty thirty forty fifty sixty seventy eighty ninety"))
}
SCALES = {"dozen": 12, "hundred": 100, "thousand": 1e3, "million": 1e6, "billion": 1e9}
ORDINALS = (
    {
        word: value + 1
        for value, word in enumerate(
            words(
                "first second third fourth fifth sixth seventh eighth ninth tenth eleventh"
                " twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth"
                " nineteenth"
            )
        )
    }
    | {f"{word[:-1]}ieth": value for word, value in NUMBER_WORDS.items() if word.endswith("ty")}
    | {"hundredth": 100}
)
MONTHS = {
    name: number + 1
    for number, name in enumerate(
        words(
            "january february march april may june july august september october november december"
        )
    )
}
DAYS = {
    name: frozenset([number])
    for number, name in enumerate(words("monday tuesday wednesday thursday friday saturday sunday"))
} | {
    "weekday": frozenset(range(5)),
    "weeknight": frozenset(range(5)),
    "weekend": frozenset((5, 6)),
}
DAYS |= {f"{name}s": days for name, days in DAYS.items()}
PARTS = {name: name for name in ("morning", "afternoon", "evening", "night")} | {
    "mornings": "morning",
    "evenings": "evening",
    "nights": "night",
    "tonight": "night",
}
NAMED_CLOCKS = {"noon": 12 * 60, "midday": 12 * 60, "midnight": 0}
RELATIVE = frozenset(("last", "next", "this"))
SPANS = group("year month week summer winter spring autumn season quarter century")
