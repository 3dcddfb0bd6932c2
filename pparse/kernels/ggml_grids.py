"""The tables of ggml's quantised types: rows of four or eight values, of which blocks name the number.

As in ggml (``src/ggml-common.h``: ``iq2xxs_grid`` and so on). The values of a row are written in two or three bits
each, the first in the lowest, and make a word; the words of a table increase. Here are their differences: first the low
bytes of all, then the high bytes, compressed with zlib and written in base 85.
"""

from __future__ import annotations

from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from numpy.typing import NDArray

# Elements of a row, bits of each, what these stand for, and the differences.
_TABLES: Final = {
    "IQ2_XXS": (
        8,
        2,
        (8, 25, 43),
        (
            "c-muNVrFJyXXasIV-jcP;oxMJVd9X8XXatmb`i;7Qb?$0<`D#nu}LU0^N7R%X*FeW!3uT*7ljyBpok<;r&*27A)&WGb@B=-JgnIq5(ZpqO"
            "B8o=NU*Ay&+wWj_L`Z;z_Ffn_Qv&099FXOOv~kWF#QLLiLG)})~S#v*{~O4F$W(P(2@cLM|sv7ehWUK85|M`l9fVt7=db8cSmq49`-Ka;N"
            ")OW;Ha@ndi$TL;(PEKK@RUbC;splXv_#b?6H8Ao2h8uJ|+%x$0iYtiyuI~P*~vRS8A@Xh>7<zkBCfSY1Yx*N=m#2^B?({wtSbc*up>nFcK"
            "-lid&iyiyD|1Bap!;ir)ezthO*Bl(52ufP5x#Yz|~(WJIW9U}R=s1Dnjk003HUK5z"
        ),
    ),
    "IQ2_XS": (
        8,
        2,
        (8, 25, 43),
        (
            "c-muNVrFJyXJ%q%2Qnm~G$*qRm}F&7go*%_K!kWWB$;^%AWTJO9#(Cxax_g$T#Cpl1mzo<dBmicoN6G(@UY4N4bf2G3TNgqaO5ag;K<`jL"
            "^FbiOB~q<0}-Zdps@xD3t&R5>>@HiV+{_7nC@WaVbT*Zs$xxi9T5(-0;ESF5lC>z&Q^-kh-BuG6hGi7=$;|j6UD(KW@;>TOrt^~iH!->?J"
            "(CN*~}^%4>Vs~`~WmOz^=(<<`I#JO5?KP*$7g?&o@udm`8H<A4C8dG=hSLX`f44I4A@Z6cyq*DmZ4kTgHp%@_RO_F*(<O4B}H!4p&k0$P@"
            "czz#1Q$x%;6X-#kPB7%-_Zg@gPp$gx}@fk}=7=np1lZ3WG8m&D?rX&kbqYD{WzGI1PyLO>Y<F})fkr%%S^toA${7t@*63xqB{<Gp~1jY*8"
            "FY$Jzn6cd|Ln8Je43&uraOl%b#F%3+Mn9?N~C<cs_t7E0W2u8x@Fyb^qltNE367&Tlb}l0;k_beQiJ*%Zv6_TtHCz!BHa9VXArb%pLe@(Q"
        ),
    ),
    "IQ2_S": (
        8,
        2,
        (8, 25, 43),
        (
            "c-qZV&r1S96n1BLt~(4$hgR1XwI4<pffPhVbm$OBHzC$S*y<2PKkyPkbTQ~Zh;E*RZguMr_^0(|XJ?%??I8W~;EZqH``-6`@0lQ!5|a{Y;"
            ">8J13(stDasV$1y5W-vn8^v{v?-HVHi#|)u(Usbp}<{PXazMg2wFpl&5uGLai6BV6?KGcKNT{zC;C&XC=)ZS37Srl`Pyl}d0v%DT`b-@CR"
            "X;oq+kL^bWWG_&Lc?b0l`#Ju2#HIX;D4iMOn`JF|XRsx+>I>aT$|}cu}|-;IUki<oOyY>?`AjG_&(<?C5kQ=ZzAAJY46t=g3V+QK-$wrof"
            "dEmNu8TI$<q$p-+CKXP>RWRS3Nc%qTa}RsDTVf3?r?s}~>Cz)Zey+R3(uJ@?_;!k}LCo6QTedd|fxTFSyz`ozgOM_#)=XdqQqs9Zf>Qogr"
            "xTFLo-kc`XXswL#X@@PbG7>);Eipz^4SsccZ-3TE)Il#J4H_Pv<WTE6sJg&<QQdk#@P7Ve<Y*_wIp(Es;c{OXRCH{yhoJ2kKRPLm3lNw2}"
            "NW5B`YC3Cgh1=KVdt#I1;Y{MYKgM5z!GDlpd@oC5oRrD`GEd_tXJ(9<1LIT~>X`fmk}w8l6g1$=B15nK07}YE2m"
        ),
    ),
    "IQ3_XXS": (
        4,
        3,
        (4, 12, 20, 28, 36, 44, 52, 62),
        (
            "c-rNSQBQ<05QMM8(gjMF3aveZcfg$_Xh@9s?3?;_@&ErDi+{sSCfS)xzBvFnNP)`-P<oj%u&Ij_GZ<89A+2DpozG1T(w%#co)E<C?Iaj=1"
            "T$WD&le3Ttuu68sO{>TjDID{$^l4d?nxEkgtW?frj;f+`l|neiI4kYu=$QK=#kstn)ajVw66Q14NLGwP}9vf%IUlFFq=ujErV<^7TU!@#^"
            "U*uwu|_)%H|-a@jO52?`eKpWCK*|*6O9t@2!N%4QM|P|NMRdlN}G4"
        ),
    ),
    "IQ3_S": (
        4,
        3,
        (1, 3, 5, 7, 9, 11, 13, 15),
        (
            "c-rle*-is73`NQHHsfqF?X+}Qq#}?Iyd(bq&v43TKwc6@_PxjUT}p(M5`e@ipm+$3X#8<vA_iM!(Zom;A+e66N|Q3dK+33K${bH6?T&)TX"
            "LQMgwsynqr}B2w99H3g2AVa6Ba4w5n!;&NC^`8+2))FzY7V3d3zE|<v%fP{JPy#pt4_a?7*e4;?iyVYlm>rPT!<WEaQ5hjcpjzNvd(10JD"
            "JQi<vKz9i8rpu@?b;I#xw}76JP<cI7bj2?#2>sGg#ZC!nP_`i#qpuJYEAgzeXqFZ??EZwMv8=MA)U178wluibGC&fxqnQc9EQQ*N}|5659"
            "yo`Kq&v)_Y04N{QhVFK^|D?<?B(nCxj;?D>4qEIJkGU#&OVx6|VXzL@4nD7skgcp96tb-z$M$Eq)%%k}>K?*IJh^8;e|55W"
        ),
    ),
    "IQ1_S": (
        8,
        2,
        (-1, 0, 1),
        (
            "c-qxf?QYvf5X^p&C-N*>NK@JpW!ZoWr*V+iQECxzfCi3h$LKTk%{zNXN^;v@O#nFt1mDNr?(FRB@)e74sWlh8h{DYRi`sWLgso8BnM}k=V"
            "P5+EX1rg-P+N;dsaoRS7hHBBT1D?e?1iYoL2FhJ)>3+y_E-_iw~zK#B8~!?bW!Zf&a3SpY;aRk*N|fI7HHyr^q>oOnznb8EG0TvQrOno<A"
            "H|-`VJ_F9fqx@66MJgEpQ`T@ygTcO=<uQwou}X5x1R{>hQ7G-<*VPCRo+UBc;QZnS^tyRIsG{-I2}H4cssV@%v7LG<I)I=lCqWVkcqt$Ox"
            "fJ_Rz_X*(wkcF!^*e<+C9jXUz02GXX3E730=Pi%Yhcsb1BE#J=2?*d%u2ZqtC$RZf*7c(9<KV+?I(5vLcPKl~u0n#+j#))W?8Rd>5W$jpQ"
            "PjNffQ=nK4c<#Y&K(`L9zf%gh)&7}v0=MNU_#wkEZCrr9QBUC%jC=lGx?_Q*CCRW*bJ?nqc<G~D7gPA!sfcBBbDw(zEzf+#5Cpq0R3(srS"
            "I;92;yAE;cG@L2~j99l(tzMR;Gm)wTrg|kU)XjKqR%St=MYK!U-SFuHd-9cC&-$z(^9YvXMmfXJHQ#4Z!9{7vdVuO4IbX;rEOQ=floDRfh"
            "Rh~%jyfw<pD5<sH0u$9$;ncN)`rX@a<_E`OZ$=?!fnHjui;C_P2z2h6%X<qtxq&R*+JG*Nh`JBi%kMAlgT3234!1PjJkw(b&B1;Q$JA+=|"
            "#NNBP)y`31o=_mrOeeNhqI_c%!9uWjT4%^hrdKRM2Cn6ISyg_)NGrxgtYDhF_q(ugF7ztxcnEY}pmg*ipD9`qZ*=Jt{~N5liIn^S}Yzl(8"
            "<DP}-ax7bYiY;0iuUW&MiOAlEW<v7BxI!X?y#S)L4aJ>jB81@+$eR~W)kMY^0S$D6TfT%pg}#<v}e*(rt$I`r}0RJ=m}ZLJ?LGLO{tcWw6"
            "pN{k+V?0}@YJW-~Pmb_x%DD<d{IH~&4OY5^YYP-eY&68)Bk1M&DJ)6qH@AjG;CB)~$TbCBOg@&2u6>F`gEa(+SNqyFPtkr-@x`tnW^k$Oj"
            "yc#qFdsurThqa9pH>gtkUpkUW7JT8AUZV(F7D-Ir?NR1z6qq2S9$9p#9m-MBxzDQGj3Q0v`Bo@C7F+*vp<cJg$E%dh<kB1QVV?xK+OhyG!"
            "|i(s>DzZvv&tU@7n8|9hvJ{8LDcbM(fu{BFbsm2=NUTS$<xpkdy{bB%gS7yJc{P(S@Z@Yy=%<nbyYm<Otw{e^}YV+V2|-<2StB~cy?G2--"
            "iFqi?7zVN3fR<@rOodFPk_zV0*lPf&9H1fPNUY9{LmXKcD{%H@{H@"
        ),
    ),
}


@cache
def grid(name: str) -> NDArray[Any]:
    """Return the table of the type ``name``, as float32."""
    from base64 import b85decode
    from zlib import decompress

    import numpy as np

    width, bits, values, text = _TABLES[name]
    steps = np.frombuffer(decompress(b85decode(text)), np.uint8).reshape(2, -1).astype(np.uint32)
    words = np.cumsum(steps[0] | steps[1] << np.uint32(8), dtype=np.uint32)
    codes = words[:, None] >> np.arange(0, width * bits, bits, dtype=np.uint32) & np.uint32((1 << bits) - 1)
    rows: NDArray[Any] = np.array(values, np.float32)[codes]
    return rows
